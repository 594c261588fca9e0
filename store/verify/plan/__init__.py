"""What a check is split into: ranges of the log and tasks."""
