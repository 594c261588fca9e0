"""Worlds: the cluster and the clients of a run."""
