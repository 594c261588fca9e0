"""Bytes that connections of one server make it keep, and what becomes of those that keep most."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Protocol


class Keeper(Hashable, Protocol):
    """For which bytes are kept."""

    def refuse(self, why: str, *args: object) -> None:
        """Closes its connection, and logs the reason: a format and its values."""


class ByteBudget:
    """Bytes of one kind, over all connections of a server.

    Each keeper may have ``each`` bytes; what exceeds that counts for ``maximum``. If more counts,
    the connections of the oldest keepers are closed: a peer that does its part is soon done, and
    begins again as the newest.
    """

    def __init__(
        self, what: str, maximum: int, each: int, now: Callable[[Keeper], int] | None = None
    ) -> None:
        """``what`` is kept, for the log. ``now`` gives the bytes of a keeper that may have become
        fewer unseen."""
        self._what = what
        self._maximum = maximum
        self._each = each
        self._now = now
        self._kept: dict[Keeper, int] = {}
        """Bytes that count; the oldest keeper is the first."""
        self._total = 0

    @property
    def total(self) -> int:
        """Bytes that count."""
        return self._total

    def keep(self, keeper: Keeper, size: int) -> None:
        """``size`` bytes of it are kept now; with 0 it is done, or gone."""
        counts = max(0, size - self._each)
        if counts:
            self._total += counts - self._kept.get(keeper, 0)
            self._kept[keeper] = counts
        else:
            self._total -= self._kept.pop(keeper, 0)
        while self._total > self._maximum:
            self._relieve()

    def _relieve(self) -> None:
        oldest, counted = next(iter(self._kept.items()))
        self._total -= self._kept.pop(oldest)
        left = counted if self._now is None else max(0, self._now(oldest) - self._each)
        if left >= counted:
            oldest.refuse(
                "more than %d bytes of %s are kept, and its own are the oldest",
                self._maximum,
                self._what,
            )
        elif left:  # its peer does its part
            self._total += left
            self._kept[oldest] = left
