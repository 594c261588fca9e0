"""Quotas: the messages and bytes per second of an account, a topic or a client."""
