"""Promises to the clients of brokers."""
