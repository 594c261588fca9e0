"""The console, driven in a real browser."""
