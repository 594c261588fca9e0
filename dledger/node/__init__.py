"""The node: drives the Raft core with a store, a transport and a clock, and serves it."""
