"""A run written down, made smaller, or drawn from a profile."""
