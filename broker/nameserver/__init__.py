"""The NameServer: registered brokers, and their queues of each topic."""
