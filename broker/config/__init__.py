"""Settings: ``node.toml``, and settings that operators change at run time."""
