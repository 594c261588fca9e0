"""Retry topics and dead letters."""
