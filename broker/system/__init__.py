"""What a server process needs of its machine: logs, memory, descriptors, clock, uncaught errors."""
