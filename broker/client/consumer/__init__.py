"""The consumer: group membership, assignment of queues, fetching and offsets."""
