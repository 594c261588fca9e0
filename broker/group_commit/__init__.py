"""Group commit: requests that arrive together become one entry of the log."""
