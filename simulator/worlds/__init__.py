"""Worlds: which cluster and which clients a run has."""
