"""The commit log: entries, segments, reading, repair, retention."""
