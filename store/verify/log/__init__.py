"""The check of the log, in columns."""
