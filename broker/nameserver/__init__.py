"""The NameServer: living brokers, and the queues of each topic that they hold."""
