"""Indexes made from the log: ConsumeQueues, and the keys of messages."""
