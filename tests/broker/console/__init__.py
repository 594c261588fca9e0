"""What the console shows and does, without a browser."""
