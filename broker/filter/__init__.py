"""SQL92 filters: expressions of consumers over the properties of a message."""
