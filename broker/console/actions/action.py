"""What every change of the console has: fields, a check, a preview, a command, and its work."""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, TypeAlias

from broker.cli.terminal.command_error import UsageError
from broker.console.visits.visit import Visit
from store.quoting import quoted
from store.text_numbers import whole_number

Values: TypeAlias = Mapping[str, str]
"""The fields of a form, by name; an empty one was not filled in."""


class Choice(NamedTuple):
    """One of a field's values."""

    value: str
    label: str


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a form. ``kind`` is text, number, area, choice, check, or hidden."""

    name: str
    label: str
    kind: str = "text"
    hint: str = ""
    default: str = ""
    required: bool = False
    choices: Sequence[Choice] = ()


@dataclass(frozen=True, slots=True)
class Preview:
    """What a change would do: a question, and rows with the figures that it moves."""

    question: str
    heads: Sequence[str] = ()
    rows: Sequence[Sequence[object]] = field(default=())
    note: str = ""


class Action(ABC):
    """One change. Its parts raise :class:`~broker.cli.terminal.command_error.CommandError`."""

    name: ClassVar[str]
    title: ClassVar[str]
    verb: ClassVar[str]
    """Of the button that does it."""
    fields: ClassVar[Sequence[Field]]
    danger: ClassVar[bool] = False
    """Whether something is lost by it."""
    leads_to: ClassVar[str] = ""
    """The page to show afterwards; empty to stay."""

    @property
    def asks_at_once(self) -> bool:
        """Whether there is nothing to fill in, so that the question comes first."""
        return all(each.kind == "hidden" for each in self.fields)

    @abstractmethod
    def arguments(self, values: Values) -> Sequence[str]:
        """Of the command that does the same, without ``dledger``. Raises for bad values."""

    @abstractmethod
    async def preview(self, visit: Visit, values: Values) -> Preview:
        """What it would do; nothing is changed."""

    @abstractmethod
    async def run(self, visit: Visit, values: Values) -> str:
        """Does it, and tells what is done."""

    async def suggest(self, visit: Visit, values: Values) -> Values:  # noqa: ARG002 - by default
        """What stands in the form at first, where that is more than the defaults."""
        return values

    def command(self, visit: Visit, values: Values) -> str:
        """The whole command, for a shell."""
        words = [*self.arguments(values)]
        if visit.namesrv:
            words += ["--namesrv", visit.namesrv]
        return shlex.join(["dledger", *words])


def checked(check: Callable[[str], object], values: Values, name: str) -> str:
    """A field that has to be there, and that the check takes. Raises :class:`UsageError`."""
    text = values.get(name, "")
    if not text:
        raise UsageError(f"{name.replace('_', ' ')} is missing")
    try:
        check(text)
    except ValueError as error:
        raise UsageError(str(error)) from None
    return text


def whole(values: Values, name: str, low: int, high: int) -> int | None:
    """A field that is a number in that range, or empty. Raises :class:`UsageError`."""
    text = values.get(name, "")
    if not text:
        return None
    try:
        number = whole_number(text)
    except ValueError:
        number = None
    if number is None or not low <= number <= high:
        raise UsageError(f"{name.replace('_', ' ')} is {quoted(text)}; it may be {low} to {high}")
    return number


def one_of(values: Values, name: str, known: Sequence[str]) -> str:
    """A field that is one of those, or empty. Raises :class:`UsageError`."""
    text = values.get(name, "")
    if text and text not in known:
        raise UsageError(f"{name.replace('_', ' ')} is none of {', '.join(known)}")
    return text


def choices(*pairs: tuple[str, str]) -> tuple[Choice, ...]:
    return tuple(Choice(*each) for each in pairs)
