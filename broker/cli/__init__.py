"""The command line: one file a command, and what they share."""
