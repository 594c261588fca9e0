"""The replicated state machine: its commands, its state, and what is digested of it."""
