"""Whole clusters of the shipped code in one process, under virtual time, from one seed."""
