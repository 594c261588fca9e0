"""Snapshots as a data source of Spark."""
