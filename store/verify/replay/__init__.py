"""The check of states by a replay of the log."""
