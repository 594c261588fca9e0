"""The exit codes of all commands."""

from __future__ import annotations

EXIT_FAILED = 1
"""A check failed, or the request was refused."""

EXIT_USAGE = 2
"""The command line is wrong, or names something that cannot be used."""

EXIT_INTERRUPTED = 130
"""Ctrl-C: 128 plus the number of the signal, as in shells."""

EXIT_TERMINATED = 143
"""SIGTERM, likewise."""
