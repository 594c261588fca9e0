"""The NameServer: which brokers live, and which queues of which topic they hold."""
