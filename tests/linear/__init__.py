"""Checks that no decoder takes more than linear time, by counting steps, not by a clock."""
