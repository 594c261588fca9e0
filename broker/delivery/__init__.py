"""Giving messages out: reads, filters, long polling, look-ups, queue locks, offset resets."""
