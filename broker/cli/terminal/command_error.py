"""How a command fails: one line that says what to do, and an exit code."""

from __future__ import annotations

EXIT_FAILED = 1
"""A check failed, or the request was refused."""

EXIT_USAGE = 2
"""The command line is wrong, or what it names cannot be used."""

EXIT_INTERRUPTED = 130
"""Ctrl-C: 128 and the number of the signal, as shells have it."""

WHERE_A_NAMESERVER_IS = (
    "start a cluster with `dledger up`, or say where a NameServer is with --namesrv HOST:PORT, "
    "which is neither a broker's port nor one for HTTP"
)


class CommandError(Exception):
    """The command cannot do what it was asked."""

    exit_code = EXIT_FAILED


class UsageError(CommandError):
    """The command line makes no sense or cannot be read."""

    exit_code = EXIT_USAGE
