"""Taking messages in: quotas, automatic topics, deduplication, routing to where they are stored."""
