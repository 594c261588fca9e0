"""How a command fails: one line that says what to do, and an exit code."""

from __future__ import annotations

import click

from broker.cli.terminal.exit_codes import EXIT_FAILED, EXIT_USAGE

WHERE_A_NAMESERVER_IS = (
    "start a cluster with `dledger up`, or say where a NameServer is with --namesrv HOST:PORT, "
    "which is neither a broker's port nor one for HTTP"
)


class CommandError(click.ClickException):
    """The command cannot do what it was asked."""

    exit_code = EXIT_FAILED
    command = ""
    """The command that failed, as :func:`~broker.cli.terminal.program.run_program` tells it."""


class UsageError(CommandError):
    """The command line makes no sense or cannot be read."""

    exit_code = EXIT_USAGE
