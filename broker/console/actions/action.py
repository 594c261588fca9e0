"""A change of the console: its fields, check, preview, command, and work."""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, TypeAlias

from broker.command_error import UsageError
from broker.console.visits.visit import Visit
from store.quoting import quoted
from store.text_numbers import whole_number

Values: TypeAlias = Mapping[str, str]
"""The values of a form's fields, by name; empty: not filled in."""


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
    """The preview of a change: a question, and rows with the affected values."""

    question: str
    heads: Sequence[str] = ()
    rows: Sequence[Sequence[object]] = field(default=())
    note: str = ""


class Action(ABC):
    """One change. Its parts raise :class:`~broker.command_error.CommandError`."""

    name: ClassVar[str]
    title: ClassVar[str]
    verb: ClassVar[str]
    """The text of the button."""
    fields: ClassVar[Sequence[Field]]
    danger: ClassVar[bool] = False
    """Whether the change deletes something."""
    leads_to: ClassVar[str] = ""
    """The page to show afterwards; empty: the same page."""

    @property
    def asks_at_once(self) -> bool:
        """Whether there are no fields to fill in, so that the question comes first."""
        return all(each.kind == "hidden" for each in self.fields)

    @abstractmethod
    def arguments(self, values: Values) -> Sequence[str]:
        """The arguments of the command that does the same, without ``dledger``. Raises for invalid
        values."""

    @abstractmethod
    async def preview(self, visit: Visit, values: Values) -> Preview:
        """The preview; nothing is changed."""

    @abstractmethod
    async def run(self, visit: Visit, values: Values) -> str:
        """Makes the change; returns a text about it."""

    async def suggest(self, visit: Visit, values: Values) -> Values:  # noqa: ARG002 - by default
        """The initial values of the form, if they are not the defaults."""
        return values

    def command(self, visit: Visit, values: Values) -> str:
        """The whole command, for a shell."""
        words = [*self.arguments(values)]
        if visit.namesrv:
            words += ["--namesrv", visit.namesrv]
        return shlex.join(["dledger", *words])


def checked(check: Callable[[str], object], values: Values, name: str) -> str:
    """A required field that passes the check. Raises :class:`UsageError`."""
    text = values.get(name, "")
    if not text:
        raise UsageError(f"{name.replace('_', ' ')} is missing")
    with UsageError.instead_of(ValueError):
        check(text)
    return text


def whole(values: Values, name: str, low: int, high: int) -> int | None:
    """A field with a number in that range, or empty. Raises :class:`UsageError`."""
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
    """A field with one of ``known``, or empty. Raises :class:`UsageError`."""
    text = values.get(name, "")
    if text and text not in known:
        raise UsageError(f"{name.replace('_', ' ')} is none of {', '.join(known)}")
    return text


def choices(*pairs: tuple[str, str]) -> tuple[Choice, ...]:
    return tuple(Choice(*each) for each in pairs)
