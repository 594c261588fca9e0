"""Planted bugs of the broker."""
