"""A limit for the bytes that a server buffers for its connections."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Protocol


class Holder(Hashable, Protocol):
    """A connection for which bytes are buffered."""

    def refuse(self, why: str, *args: object) -> None:
        """Closes the connection, and logs the reason: a format and its values."""


class ByteBudget:
    """Buffered bytes of one kind, over all connections of a server.

    Each holder may have ``each`` bytes. Bytes above that count towards ``maximum``. If more bytes
    count, the connections of the oldest holders are closed. A peer that keeps up is soon below
    ``each``, and counts as the newest next time.
    """

    def __init__(
        self, name: str, maximum: int, each: int, now: Callable[[Holder], int] | None = None
    ) -> None:
        """``name`` of the bytes stands in the log. ``now`` gives the present bytes of a holder, if
        they may shrink without a call of :meth:`keep`."""
        self._name = name
        self._maximum = maximum
        self._each = each
        self._now = now
        self._kept: dict[Holder, int] = {}
        """Bytes that count, by holder, the oldest holder first."""
        self._total = 0

    @property
    def total(self) -> int:
        """Bytes that count."""
        return self._total

    def keep(self, holder: Holder, size: int) -> None:
        """``size`` bytes are buffered for the holder now; 0: none, or the connection is lost."""
        counts = max(0, size - self._each)
        if counts:
            self._total += counts - self._kept.get(holder, 0)
            self._kept[holder] = counts
        else:
            self._total -= self._kept.pop(holder, 0)
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
                self._name,
            )
        elif left:  # its peer keeps up
            self._total += left
            self._kept[oldest] = left
