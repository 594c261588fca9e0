"""The simulator's command line: one module a command."""
