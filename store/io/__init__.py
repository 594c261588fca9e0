"""Files: the door to the operating system, and the ways of writing through it."""
