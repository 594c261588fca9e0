"""Every command is on its page, as it is, and every example of a command is taken by it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import click
import pytest

from broker.cli.command_line import COMMANDS, EXAMPLES, dledger, load_command
from tests.support.command_reference import PAGE, commands_of, reference

COMMENT = re.compile(r"\s{3,}(?=\S).*$", re.MULTILINE)
"""Examples are told apart from what is said of them by three spaces."""


def test_the_page_of_commands_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), (
        "write it anew: python -m tests.support.command_reference"
    )


def leaves() -> list[tuple[str, click.Command]]:
    every = [each for name in COMMANDS for each in commands_of(name, load_command(name))]
    return [(name, command) for name, command in every if not isinstance(command, click.Group)]


LEAVES = dict(leaves())


def called(examples: str) -> Iterator[list[str]]:
    """The arguments of each ``dledger`` in the examples."""
    joined = re.sub(r"\\\n\s+", "", examples)
    for line in joined.splitlines():
        lexer = shlex.shlex(COMMENT.sub("", line.strip()), posix=True, punctuation_chars="|&;<>()")
        lexer.whitespace_split = True
        words: list[str] = []
        for word in (*lexer, "|"):
            if word[0] not in "|&;<>()":
                words.append(word)
                continue
            if "dledger" in words[:1]:
                yield words[1:]
            words = []


@pytest.mark.parametrize("name", LEAVES)
def test_a_command_has_an_example_that_it_takes(name: str) -> None:
    command = LEAVES[name]
    lines = list(called(getattr(command, "examples", "")))
    assert any(" ".join(line).startswith(name) for line in lines) or name == "completion"
    for line in lines:
        check_taken(line)


def test_the_examples_of_the_overview_are_taken() -> None:
    lines = [line for line in called(EXAMPLES) if line[0] != "COMMAND"]
    assert len(lines) == 4
    for line in lines:
        check_taken(line)


def check_taken(arguments: list[str]) -> None:
    command: click.Command | None = dledger
    while isinstance(command, click.Group):
        name, command, arguments = command.resolve_command(click.Context(command), arguments)
    assert command is not None
    command.make_context(name, arguments)


@pytest.mark.parametrize("name", LEAVES)
def test_every_option_says_what_it_is(name: str) -> None:
    for param in LEAVES[name].params:
        assert not isinstance(param, click.Option) or param.help, param.name
