"""Derived files: ConsumeQueues and the key index."""
