"""The message broker: what users talk to, built on the replicated log."""
