"""Snapshots outside their cluster: in object stores, and restored into a new one."""
