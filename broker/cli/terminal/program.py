"""click's commands, with three rules of this project.

A failure is one line on stderr, without a usage block. The help of a command ends with its
examples. A command returns its exit code; None is 0.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import click

from broker.cli.terminal.standard_streams import drop_output
from broker.command_error import CommandError
from broker.exit_codes import EXIT_FAILED, EXIT_USAGE

COMPLETION = "_DLEDGER_COMPLETE"
"""click's variable for requests of shell completion."""


class CommandLine(NamedTuple):
    """For commands that start others as forks: see ``broker/cli/local_cluster/forked_servers.py``.
    They get it by ``click.pass_obj``."""

    prepare: Callable[[str], None]
    """Imports the modules of a command, before the forks."""
    run: Callable[[Sequence[str]], int]
    """Runs a command with its arguments; returns its exit code."""


class _WithEpilog(click.Command):
    """``examples`` are lines for a shell; ``notes`` follow them unchanged."""

    examples: str
    notes: str

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.examples:
            with formatter.section("Examples"):
                formatter.write(self.examples)
        if self.notes:
            formatter.write(f"\n{self.notes}")
        super().format_epilog(ctx, formatter)


class Command(_WithEpilog):
    """A command without actions."""

    def __init__(
        self, name: str | None, *, examples: str = "", notes: str = "", **attrs: Any
    ) -> None:
        super().__init__(name, **attrs)
        self.examples = examples
        self.notes = notes

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # the result is not seen, so the command failed
            drop_output()
            return EXIT_FAILED
        except CommandError as error:
            error.command = error.command or ctx.command_path
            raise


class Group(_WithEpilog, click.Group):
    """A command with actions. Its examples are those of the actions, in the order of definition."""

    command_class = Command
    group_class = type

    def __init__(self, name: str | None = None, *, notes: str = "", **attrs: Any) -> None:
        super().__init__(name, **attrs)
        self.notes = notes

    @property
    def examples(self) -> str:  # type: ignore[override]  # it is only read
        return "".join(getattr(each, "examples", "") for each in self.commands.values())

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(self.commands)


def run_program(
    program: click.Command, name: str, arguments: Sequence[str], obj: CommandLine | None = None
) -> int:
    """Runs one command; returns its exit code. ``obj`` is for ``click.pass_obj``."""
    try:
        with program.make_context(name, list(arguments), obj=obj) as context:
            return program.invoke(context) or 0
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return EXIT_USAGE
    except click.ClickException as error:
        where = error.command if isinstance(error, CommandError) else ""
        if isinstance(error, click.UsageError) and error.ctx is not None:
            where = error.ctx.command_path
        print(f"{where or name}: {one_line(error.format_message())}", file=sys.stderr)
        return error.exit_code


def one_line(text: str) -> str:
    """The text as one line for the terminal."""
    from store.quoting import shortened  # noqa: PLC0415 - only for failures

    text = " ".join(shortened(text).split("\n"))
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)
