"""``dledger``: finds the command, runs it, and ends the standard streams cleanly.

A command is a module of :mod:`broker.cli.commands` with one name, or two::

    command: click.Command                # returns its exit code
    def import_server() -> None           # only of a server: imports its modules

It raises :class:`~broker.command_error.CommandError` if it cannot do its work. Only
the requested command is imported, so ``dledger --help`` answers at once. Results go to stdout,
everything else to stderr.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import click

from broker.cli.terminal.program import COMPLETION, CommandLine, Group, one_line, run_program
from broker.cli.terminal.standard_streams import (
    buffer_output,
    drop_output,
    open_missing_streams,
    unusable,
    unwritable,
)
from broker.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE

COMMANDS = {
    "up": "Start a local cluster: a NameServer and groups of brokers.",
    "status": "Groups, nodes, roles, terms, and the log of each replica.",
    "health": "Whether groups have a leader and a majority, and may lose nodes.",
    "down": "Stop the cluster that `up` started; its data stays.",
    "kill": "Kill one node of the local cluster, as `kill -9`.",
    "start": "Start nodes of the local cluster again.",
    "node": "Run one broker process in the foreground.",
    "namesrv": "Run one NameServer in the foreground.",
    "topic": "Create, alter, list, describe and delete topics.",
    "group": "Consumer groups: create, alter, list, describe, reset, delete.",
    "produce": "Send one message for each line of stdin, or for each file.",
    "consume": "Print the messages of a topic.",
    "dlq": "Dead letters of consumer groups: list, show, resend and purge them.",
    "message": "Get a message by its id, or find messages by key.",
    "snapshot": "Copy every replica of running groups, without stopping them.",
    "backup": "Back up groups to an object store; list and prune backups.",
    "restore": "Make a new cluster, or the data of a node, from a snapshot or backup.",
    "mirror": "Copy topics of another cluster into this one.",
    "leader": "Transfer the leadership of a group to another voter.",
    "member": "Add, promote, remove, replace and list the members of a group.",
    "security": "Certificates and secrets of a cluster, and its accounts.",
    "config": "Settings files, and settings of running groups.",
    "quota": "Limit the rates of accounts, topics and clients.",
    "verify": "Check the data of stopped replicas, or of snapshots.",
    "bench": "Measure producing, consuming and failover.",
    "completion": "Print the completion script for bash, zsh or fish.",
}
"""All commands, each with the first line of its help."""

EXAMPLES = """\
  dledger up                                   three nodes and a NameServer on this machine
  dledger topic create orders --queues 8
  printf 'one\\ntwo\\n' | dledger produce orders
  dledger consume orders --group printers --from earliest --count 2
  dledger COMMAND --help                       the options of a command, with an example
"""


class _Dledger(Group):
    """Knows the name and summary of each command, and imports only the requested one."""

    examples = EXAMPLES

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command and load_command(name or ""), rest


def load_command(name: str) -> click.Command:
    """Imports the module of a command. Ctrl-C during the import ends the process."""
    with _quiet_interrupt():
        command: click.Command = importlib.import_module(f"broker.cli.commands.{name}").command
    command.help = COMMANDS[name]
    return command


dledger = _Dledger(
    "dledger",
    help="A replicated message broker that speaks RocketMQ.",
    commands={name: click.Command(name, short_help=text) for name, text in COMMANDS.items()},
)
click.version_option(package_name="dledger", message="dledger %(version)s")(dledger)


def run_command(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code (0, 1, or 2 for bad usage)."""
    open_missing_streams()
    buffer_output()
    arguments = list(sys.argv[1:] if argv is None else argv)
    for number, argument in enumerate(arguments, 1):
        if not _is_text(argument):
            print(
                f"dledger: argument {number} is not UTF-8: {ascii(argument)[:80]}", file=sys.stderr
            )
            return EXIT_USAGE
    try:
        try:
            return _run(arguments)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        drop_output()
        return 0
    except (KeyboardInterrupt, click.Abort):
        return EXIT_INTERRUPTED
    except OSError as error:
        told = unwritable(error) or unusable(error)
        if told is None:
            raise
        drop_output()
        print(f"{' '.join(['dledger', *arguments[:1]])}: {one_line(told)}", file=sys.stderr)
        return EXIT_FAILED


def _run(arguments: Sequence[str]) -> int:
    if completion := os.environ.get(COMPLETION):
        from click.shell_completion import shell_complete  # noqa: PLC0415 - only for a shell

        return shell_complete(dledger, {}, "dledger", COMPLETION, completion)
    return run_program(dledger, "dledger", arguments, COMMAND_LINE)


def _is_text(argument: str) -> bool:
    """Whether every stream can write it. Bytes that are not UTF-8 arrive as surrogates."""
    try:
        argument.encode()
    except UnicodeEncodeError:
        return False
    return True


def _prepare(name: str) -> None:
    """Imports a server's command, and the server's modules."""
    import_server: Callable[[], None] | None
    load_command(name)
    module = sys.modules[f"broker.cli.commands.{name}"]
    import_server = getattr(module, "import_server", None)
    if import_server is not None:
        import_server()


@contextmanager
def _quiet_interrupt() -> Iterator[None]:
    """Ctrl-C ends the process by the signal, without a traceback of the imports. A process that
    ignores the signal still ignores it."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


COMMAND_LINE = CommandLine(_prepare, run_command)
