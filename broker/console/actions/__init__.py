"""The changes of the console. Each asks first, and shows the command that does the same."""
