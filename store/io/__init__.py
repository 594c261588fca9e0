"""The interface to the operating system's files, and the ways of writing to them."""
