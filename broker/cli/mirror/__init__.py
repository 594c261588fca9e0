"""Copies of topics in another cluster."""
