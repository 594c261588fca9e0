"""Scheduled messages, by delay level or by time: where they lie, and how they are delivered."""
