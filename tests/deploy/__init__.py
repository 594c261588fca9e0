"""The files with which operators run it: units, containers, and the wheel."""
