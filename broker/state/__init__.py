"""The replicated state machine: its commands, its state, and the digests of it."""
