"""A cluster on this machine: its ports, its processes, its readiness."""
