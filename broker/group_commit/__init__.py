"""Group commit: what arrives together becomes one entry of the log."""
