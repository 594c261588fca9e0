"""Quotas: how many messages and bytes a second an account, a topic or a client may have."""
