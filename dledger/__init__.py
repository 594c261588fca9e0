"""Raft over the commit log: the protocol core, the node that drives it, and its transport."""
