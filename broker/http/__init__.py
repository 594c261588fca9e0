"""The HTTP port of a broker: JSON for curl and for people."""
