"""The check of derived files."""
