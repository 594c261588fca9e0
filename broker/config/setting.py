"""The definition of one setting, used by the loader, the checks, the pages and the commands.

A dataclass of settings has a field for each of them, made by :func:`setting` or :func:`section`.
:func:`settings_of` lists them with their full keys.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")

REQUIRED: Final = object()
"""Instead of a default: the setting is required."""

ANY_NODE = "NODE"
"""In a key: stands for the name of any member, such as ``n0``."""


class Allowed(NamedTuple):
    """The allowed values: a check, and the words after "it may be"."""

    holds: Callable[[Any], object]
    words: str


def between(minimum: int, maximum: int) -> Allowed:
    """A number from ``minimum`` to ``maximum``."""
    return Allowed(lambda value: minimum <= value <= maximum, f"from {minimum} to {maximum}")


def one_of(*values: str) -> Allowed:
    """One of these words."""
    *most, last = (f'"{value}"' for value in values)
    return Allowed(values.__contains__, f"{', '.join(most)} or {last}")


def matching(pattern: str | re.Pattern[str], words: str) -> Allowed:
    """A text that matches the whole pattern."""
    return Allowed(re.compile(pattern).fullmatch, words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """``kind`` is str, int, bool, tuple (a list of strings) or Endpoint (``host:port``).

    ``item`` is the kind of the items of a list; ``allowed`` checks each item. ``doc`` is a
    sentence. ``reload``: it is read again at SIGHUP. ``example``, without a default, is for files
    that are written for people.
    """

    key: str
    kind: type
    doc: str
    default: object = REQUIRED
    item: type = str
    unit: str = ""
    allowed: Allowed | None = None
    reload: bool = False
    example: object = None

    @property
    def path(self) -> tuple[str, ...]:
        """The parts of its key."""
        return tuple(self.key.split("."))

    @property
    def required(self) -> bool:
        """Whether it must be given."""
        return self.default is REQUIRED

    def path_set_by(self, variable: str, prefix: str) -> tuple[str, ...] | None:
        """The key that an environment variable sets, with the name of a node in it; None for
        another variable."""
        name = self.variable(prefix)
        if ANY_NODE not in self.path:
            return self.path if variable == name else None
        match = re.fullmatch(name.replace(ANY_NODE, "(N[0-9]{1,4})"), variable)
        if match is None:
            return None
        return tuple(match[1].lower() if part == ANY_NODE else part for part in self.path)

    def variable(self, prefix: str) -> str:
        """The environment variable that sets it."""
        return prefix + self.key.replace(".", "_").upper()


def setting(
    default: T,
    doc: str,
    *,
    unit: str = "",
    allowed: Allowed | None = None,
    reload: bool = False,
    kind: type | None = None,
) -> T:
    """A dataclass field for one setting. Without ``kind`` its type is that of ``default``."""
    found = Setting(
        key="",
        kind=kind or type(default),
        doc=doc,
        default=default,
        unit=unit,
        allowed=allowed,
        reload=reload,
    )
    made: T = field(default=default, metadata={SETTINGS: (found,)})
    return made


def required(example: object, doc: str, allowed: Allowed | None = None, *, item: type = str) -> Any:
    """A dataclass field for a required setting. Its type is that of ``example``."""
    found = Setting(
        key="", kind=type(example), doc=doc, allowed=allowed, item=item, example=example
    )
    return field(metadata={SETTINGS: (found,)})


def section(default: Any, *settings: Setting) -> Any:
    """A dataclass field for a table of settings, whose keys are given without the table's name."""
    return field(default=default, metadata={SETTINGS: settings})


SETTINGS = "settings"


def settings_of(config: type[DataclassInstance]) -> tuple[Setting, ...]:
    """All settings of a class, in order, with their full keys."""
    found: list[Setting] = []
    for each in fields(config):
        for one in each.metadata.get(SETTINGS, ()):
            key = f"{each.name}.{one.key}" if one.key else each.name
            found.append(replace(one, key=key))
    return tuple(found)
