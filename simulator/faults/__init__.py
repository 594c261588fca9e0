"""The faults: what may happen to a cluster, and when."""
