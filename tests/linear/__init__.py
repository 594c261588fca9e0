"""That no decoder takes more than linear time, by counting its steps (no clock)."""
