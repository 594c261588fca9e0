"""``dledger``: finds the command, reads its arguments, turns its failure into one line.

A command is a module of this package with three names, or four::

    EXAMPLES: str                                           # shown under --help
    def add_arguments(parser: argparse.ArgumentParser) -> None
    def run(args: argparse.Namespace) -> int                # the exit code: 0, or 1 where what it
                                                            # checked does not hold
    def import_server() -> None                             # of a server: imports what it needs

and raises :class:`~broker.cli.terminal.command_error.CommandError` if it cannot do its work.
``args.command_line`` is this command line, for a command that starts others in forks. Only the
requested command is imported, so ``dledger --help`` and ``dledger start`` answer at once. Results
go to stdout, everything else to stderr.
"""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, NoReturn, Protocol, cast

from broker.cli.terminal.command_error import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    CommandError,
)
from broker.cli.terminal.standard_streams import (
    buffer_output,
    drop_output,
    open_missing_streams,
    unusable,
    unwritable,
)

COMMANDS = {
    "up": "start a local cluster: a NameServer and groups of brokers",
    "status": "groups, nodes, roles, terms, and how far each replica is",
    "health": "whether every group has a leader and a majority, and how many nodes it may lose",
    "down": "stop what `up` started; its data stays",
    "kill": "kill -9 one node of the local cluster",
    "start": "bring a node of the local cluster back",
    "node": "run one broker process in the foreground",
    "namesrv": "run one NameServer in the foreground",
    "topic": "create, list, describe and delete topics",
    "group": "list and describe consumer groups, reset their offsets, delete them",
    "produce": "send one message for each line of stdin",
    "consume": "print the messages of a topic",
    "message": "get a message by its id, or find messages by key",
    "snapshot": "copy every replica of running groups to a directory, without stopping them",
    "leader": "hand the leadership of a group to another voter",
    "member": "add, promote, remove, replace and list the members of a group",
    "security": "certificates and secrets of a cluster, and its accounts",
    "config": "files of settings, and settings of running groups",
    "verify": "check the data of stopped replicas, or of snapshots, and compare them",
    "bench": "measure producing, consuming and failover",
}

EPILOG = """\
examples:
  dledger up                                   three nodes and a NameServer on this machine
  dledger topic create orders --queues 8
  printf 'one\\ntwo\\n' | dledger produce orders
  dledger consume orders --group printers --from earliest --count 2
  dledger COMMAND --help                       what a command takes, with an example
"""


class Command(Protocol):
    """The module of a command."""

    EXAMPLES: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> int: ...


class CommandLine(NamedTuple):
    """See :class:`broker.cli.local_cluster.forked_servers.CommandLine`."""

    prepare: Callable[[str], None]
    run: Callable[[Sequence[str]], int]


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
        if argument.startswith("-") and argument.endswith("=--"):  # argparse makes a list of it
            print(f"dledger: {_shortened(argument)}: `--` is no value", file=sys.stderr)
            return EXIT_USAGE
    code = 0
    try:
        try:
            code = _run(arguments)
        finally:  # also behind what --help prints, which leaves from in there
            sys.stdout.flush()
    except BrokenPipeError:  # the reader (head, say) has enough of what is printed by now
        drop_output()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except OSError as error:
        told = unwritable(error) or unusable(error)
        if told is None:
            raise
        drop_output()
        print(f"{' '.join(['dledger', *arguments[:1]])}: {_shortened(told)}", file=sys.stderr)
        return EXIT_FAILED
    return code


def _shortened(text: str) -> str:
    """One line for the terminal, whatever was typed."""
    from store.quoting import shortened  # noqa: PLC0415 - no command that succeeds needs it

    text = shortened(text)
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def _is_text(argument: str) -> bool:
    """Whether every stream can write it: bytes that are no UTF-8 come as halves of characters."""
    try:
        argument.encode()
    except UnicodeEncodeError:
        return False
    return True


def _run(arguments: Sequence[str]) -> int:
    with _quiet_interrupt():
        name = _parse_command(arguments[:1])
        command = _command(name)
    parser = _Parser(
        prog=f"dledger {name}",
        description=COMMANDS[name][0].upper() + COMMANDS[name][1:] + ".",
        epilog=f"examples:\n{command.EXAMPLES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_arguments(parser)
    parser.set_defaults(command_line=COMMAND_LINE)
    args = parser.parse_args(arguments[1:])
    from broker.cli.terminal.options import profile_in_environment  # noqa: PLC0415 - as commands do

    try:
        with profile_in_environment(args):
            return command.run(args)
    except BrokenPipeError:  # nobody learns how it would have ended, so it did not end well
        drop_output()
        return EXIT_FAILED
    except CommandError as error:
        print(f"dledger {name}: {_shortened(str(error))}", file=sys.stderr)
        return error.exit_code


def _command(name: str) -> Command:
    return cast(Command, importlib.import_module(f"broker.cli.commands.{name}"))


def _prepare(name: str) -> None:
    import_server: Callable[[], None] = getattr(_command(name), "import_server", _nothing)
    import_server()


def _nothing() -> None:
    """Importing the command was all."""


@contextmanager
def _quiet_interrupt() -> Iterator[None]:
    """Ctrl-C ends the process by the signal, not by a traceback out of the imports, because nothing
    has begun yet. A process that ignores it goes on to ignore it."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


class _Parser(argparse.ArgumentParser):
    """Repeats no more of what was typed than anybody reads."""

    def error(self, message: str) -> NoReturn:
        super().error(_shortened(message))


class _Version(argparse.Action):
    """``--version``, which is looked up only where it is asked for."""

    def __init__(self, option_strings: Sequence[str], dest: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help="print the version and leave")

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version  # noqa: PLC0415 - no other command needs it

        print(f"dledger {version('dledger')}")
        parser.exit()


def _parse_command(arguments: Sequence[str]) -> str:
    """The command's name. Without one it prints help or a complaint and exits."""
    width = max(map(len, COMMANDS))
    listing = "\n".join(f"  {name:<{width}}  {summary}" for name, summary in COMMANDS.items())
    parser = _Parser(
        prog="dledger",
        usage="dledger COMMAND ...",
        description=f"A replicated message broker that speaks RocketMQ.\n\ncommands:\n{listing}",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version)
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND", help=argparse.SUPPRESS)
    if not arguments:
        parser.print_help(sys.stderr)
        sys.exit(EXIT_USAGE)
    name: str = parser.parse_args(arguments).command
    return name


COMMAND_LINE = CommandLine(_prepare, run_command)
