"""Reads files that may be damaged."""
