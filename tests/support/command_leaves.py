"""The commands of a program, found in its parsers: so a new one is tested too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import click

from broker.cli.command_line import dledger, load_command

SECONDS = 0.01

PLAUSIBLE = {
    "broker": "127.0.0.1:1",
    "address": "127.0.0.1:1",
    "message_id": "0" * 32,
    "node": "n1",
    "nodes": "n1",
    "path": "node.toml",
    "target": "latest",
}
"""What a parameter of that name may be; of others, any word."""


class Leaf(NamedTuple):
    """One command, and what it takes: its words, options with a value, and arguments."""

    words: tuple[str, ...]
    params: tuple[click.Parameter, ...]

    @property
    def name(self) -> str:
        return " ".join(self.words)

    def values(self) -> list[click.Parameter]:
        """All that take a value."""
        return [each for each in self.params if not getattr(each, "is_flag", False)]

    def line(self, given: click.Parameter | None = None, value: str = "") -> list[str]:
        """As short as it can be, with ``value`` for one of its arguments."""
        words = [*self.words]
        # Without a limit some would wait for a cluster to come.
        words += [f"--timeout={SECONDS}" for each in self.params if each.name == "timeout"]
        for param in self.params:
            if param is given:
                words += _written(param, value)
            elif param.required:
                words += _written(param, PLAUSIBLE.get(param.name or "", _choice(param)))
        return words


def _choice(param: click.Parameter) -> str:
    return str(param.type.choices[0]) if isinstance(param.type, click.Choice) else "word"


def _written(param: click.Parameter, value: str) -> list[str]:
    if isinstance(param, click.Argument):
        return [value]
    name = param.opts[-1]
    return [f"{name}={value}"] if name.startswith("--") else [name, value]


def leaves_of(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[Leaf]:
    """All commands of a program that have no commands themselves."""
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            loaded = load_command(name) if command is dledger else child
            yield from leaves_of(loaded, (*words, name))
    else:
        yield Leaf(words, tuple(command.params))
