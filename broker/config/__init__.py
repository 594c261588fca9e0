"""Settings: ``node.toml``, and what operators change while the brokers run."""
