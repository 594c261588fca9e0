"""Requests of commands and of the console to the NameServer and the brokers of a cluster, wherever it runs."""
