"""Recalled timed messages, until their time has passed.

A recalled message stays on the timer wheel. At its time it is skipped there, and dropped here. So
it costs a place in this list, and the log keeps it no longer than other messages.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

TimedKey: TypeAlias = tuple[int, int]
"""The time in ms at which a timed message is due, and its offset: the order of delivery."""


@dataclass(slots=True)
class RecalledMessages:
    """The keys of recalled messages, in order."""

    keys: list[TimedKey] = field(default_factory=list)

    def __contains__(self, key: TimedKey) -> bool:
        at = bisect_left(self.keys, key)
        return self.keys[at : at + 1] == [key]

    def __iter__(self) -> Iterator[TimedKey]:
        return iter(self.keys)

    def __len__(self) -> int:
        return len(self.keys)

    def add(self, key: TimedKey) -> None:
        """Adds a recalled message; a second time has no effect."""
        if key not in self:
            insort(self.keys, key)

    def until(self, key: TimedKey) -> Sequence[TimedKey]:
        """The keys up to this one, inclusive."""
        return self.keys[: bisect_right(self.keys, key)]

    def forget_until(self, key: TimedKey) -> None:
        """Drops the keys up to this one, whose time has passed."""
        del self.keys[: bisect_right(self.keys, key)]
