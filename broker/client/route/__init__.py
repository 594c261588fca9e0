"""Routes: which brokers hold the queues of a topic."""
