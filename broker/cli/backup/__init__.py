"""Snapshots outside their cluster: restored into a new one."""
