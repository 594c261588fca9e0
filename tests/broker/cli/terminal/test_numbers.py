"""Options that are numbers take the digits 0 to 9, in every program of this project."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from broker.cli.command_line import COMMANDS, load_command
from broker.cli.terminal.numbers import WholeRange, seconds
from simulator.cli.main import simulator
from spark.cli import spark
from tests.soak.__main__ import main as soak
from tests.support.command_reference import commands_of

ODD = ["1_0", "٣", " 3", "3 ", "0x3", "1e3", "3.0", ""]


def parameters() -> Iterator[tuple[str, click.Parameter]]:
    roots = [(f"dledger {name}", load_command(name)) for name in COMMANDS]
    for root, command in [*roots, ("simulator", simulator), ("spark", spark), ("soak", soak)]:
        for words, each in commands_of(root, command):
            for param in each.params:
                yield f"{words}: {param.name}", param


def test_every_option_that_is_a_number_has_the_type_that_is_strict() -> None:
    """click's own, which an option also gets from its default, takes 1_0 and any digits."""
    loose = (type(click.INT), click.types.FloatParamType, click.FloatRange)
    numbers = {name: each.type for name, each in parameters() if isinstance(each.type, loose)}
    assert len(numbers) > 20
    assert [name for name, kind in numbers.items() if not isinstance(kind, WholeRange)] == []


@pytest.mark.parametrize("text", ODD)
def test_odd_numbers_are_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a valid integer"):
        WholeRange(0, 100).convert(text, None, None)


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("+7", 7), ("007", 7), ("100", 100)])
def test_plain_numbers_are_read(text: str, number: int) -> None:
    assert WholeRange(0, 100).convert(text, None, None) == number


@pytest.mark.parametrize("text", ["1_0", "٣", " 3", "nan", "inf", "-1", "0", "1e", ".", "1e400"])
def test_odd_times_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a number of seconds above 0"):
        seconds(text)


@pytest.mark.parametrize(
    ("text", "value"), [("3", 3.0), ("0.5", 0.5), (".5", 0.5), ("2.", 2.0), ("1e2", 100.0)]
)
def test_plain_times_are_read(text: str, value: float) -> None:
    assert seconds(text) == value
