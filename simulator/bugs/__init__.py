"""Planted bugs: each takes one defence out of the shipped code, for the length of a run.

They test the simulator: a check that never fires proves nothing. The ids name bugs that real
systems had. A small letter at the end marks another way to the same bug, an ``X`` a bug of our own.
Ids L take out defences of ``dledger/``, ids M of ``store/``, ids N of ``broker/``.
``docs/planted-bugs.md`` explains all letters, and ``docs/defences.md`` says which bug takes out
which defence. The shipped code knows nothing of this: a bug replaces a function of it in memory,
and puts it back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from itertools import pairwise
from pkgutil import walk_packages

from simulator.bugs.planted_bug import Bug, BugsOf, Finding, look_for, planted

__all__ = ["BUGS", "Bug", "Finding", "bug_by_id", "look_for", "planted"]


def _bugs_of_all_modules() -> Iterator[Bug]:
    for each in walk_packages(__path__, f"{__name__}."):
        bug = getattr(import_module(each.name), "bug", None)
        if isinstance(bug, BugsOf):
            yield from bug.bugs


def _in_order(bugs: Iterable[Bug]) -> tuple[Bug, ...]:
    """Raises :class:`ValueError` if two have the same id."""
    found = sorted(bugs, key=lambda bug: bug.place)
    for one, next_ in pairwise(found):
        if one.id == next_.id:
            raise ValueError(f"{one.id} is the id of two bugs: {one.name}; {next_.name}")
    return tuple(found)


BUGS: tuple[Bug, ...] = _in_order(_bugs_of_all_modules())
"""All of them, in the order of their ids."""


def bug_by_id(id_: str) -> Bug | None:
    """The bug of that id, or None."""
    return next((bug for bug in BUGS if bug.id == id_), None)
