"""Code that all commands share: arguments, streams, signals, progress and errors."""
