"""Planted bugs of the Raft core and the node."""
