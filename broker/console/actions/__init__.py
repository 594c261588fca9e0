"""What the console changes. Each action asks first, and tells the command that does the same."""
