"""What commands ask the NameServer and the brokers of a cluster, wherever it runs."""
