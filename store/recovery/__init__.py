"""Recovery: opens the directory of a replica after any crash."""
