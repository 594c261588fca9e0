"""From a directory after any crash to a replica that is open."""
