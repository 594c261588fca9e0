"""Requests of commands and of the console to NameServers and brokers of any cluster."""
