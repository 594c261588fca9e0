"""Messages: RocketMQ's record, and the batch that an entry holds."""
