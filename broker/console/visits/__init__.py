"""Requests of browsers, and the changes that they have begun."""
