"""Code that all commands share: arguments, streams, signals and progress."""
