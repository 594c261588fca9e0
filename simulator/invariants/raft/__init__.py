"""Promises of Raft and of the store."""
