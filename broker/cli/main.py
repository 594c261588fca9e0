"""The entry point of ``dledger``. It imports nothing before Ctrl-C is handled."""

from __future__ import annotations

from collections.abc import Sequence

from broker.exit_codes import EXIT_INTERRUPTED


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code (0, 1, or 2 for bad usage)."""
    try:
        from broker.cli.command_line import run_command  # noqa: PLC0415 - it takes a while
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return run_command(argv)
