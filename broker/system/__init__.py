"""The system side of a server process: logs, memory, descriptors, clock, uncaught errors."""
