"""The plan of a check: replicas, ranges of the log, tasks."""
