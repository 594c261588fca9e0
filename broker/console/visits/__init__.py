"""Requests of browsers, and what they have begun."""
