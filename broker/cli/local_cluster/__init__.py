"""A cluster on this machine: its ports, its processes, and when it is ready."""
