"""Histories of reads and writes: the check, and a picture of one that is not linearizable."""
