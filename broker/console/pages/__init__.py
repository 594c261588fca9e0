"""The content of the console's pages."""
