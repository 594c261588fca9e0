"""The check of states by playing the log again."""
