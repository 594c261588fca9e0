"""The faults of a cluster, and their times."""
