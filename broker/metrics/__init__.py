"""Counters and rates of topics, groups and the broker."""
