"""Whole clusters in one process: virtual time, a simulated network and simulated disks."""
