"""Scheduled messages, by delay level or by time: their topics, and their delivery."""
