"""The failure of a command: one line that says what to do, and an exit code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from broker.exit_codes import EXIT_FAILED, EXIT_USAGE

WHERE_A_NAMESERVER_IS = (
    "start a cluster with `dledger up`, or give a NameServer with --namesrv HOST:PORT, "
    "which is neither a broker's port nor one for HTTP"
)


class CommandError(click.ClickException):
    """The command failed."""

    exit_code = EXIT_FAILED
    retriable = False
    """Whether the same request may succeed later, as with errors of the client library."""
    command = ""
    """The name of the failed command, set by :func:`~broker.cli.terminal.program.run_program`."""

    @classmethod
    @contextmanager
    def instead_of(cls, *kinds: type[Exception]) -> Iterator[None]:
        """For a block or a function: this error, with the same words, is raised instead of those.

        What they say must be for who gave the command.
        """
        try:
            yield
        except kinds as error:
            raise cls(str(error)) from error


class UsageError(CommandError):
    """The command line is wrong, or names something that cannot be used."""

    exit_code = EXIT_USAGE
