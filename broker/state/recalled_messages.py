"""Timed messages that their producer has taken back, until their time has passed.

A recalled message stays on the timer wheel. When its time comes it is passed over, and forgotten
here. So it costs its place in this list, and the log keeps it no longer than the others.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

TimedKey: TypeAlias = tuple[int, int]
"""When a timed message is due, ms, and its offset: the order in which they are delivered."""


@dataclass(slots=True)
class RecalledMessages:
    """By time, then offset."""

    keys: list[TimedKey] = field(default_factory=list)

    def __contains__(self, key: TimedKey) -> bool:
        at = bisect_left(self.keys, key)
        return self.keys[at : at + 1] == [key]

    def __iter__(self) -> Iterator[TimedKey]:
        return iter(self.keys)

    def __len__(self) -> int:
        return len(self.keys)

    def add(self, key: TimedKey) -> None:
        """It is taken back; twice is once."""
        if key not in self:
            insort(self.keys, key)

    def until(self, key: TimedKey) -> Sequence[TimedKey]:
        """Those up to this one."""
        return self.keys[: bisect_right(self.keys, key)]

    def forget_until(self, key: TimedKey) -> None:
        """The time of those up to this one has passed."""
        del self.keys[: bisect_right(self.keys, key)]
