"""Planted bugs of the store and its disk."""
