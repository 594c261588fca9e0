"""Requests of commands to the NameServer and the brokers of a cluster, wherever it runs."""
