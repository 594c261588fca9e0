"""The check of what is made from the log."""
