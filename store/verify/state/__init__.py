"""The check of the small files and of states at one index."""
