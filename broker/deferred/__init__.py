"""Messages that are not to be delivered at once: where they wait, and how they get out again."""
