"""Incomplete frames: how many bytes of them are kept, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from broker.limits import RemotingLimits

Refuse: TypeAlias = Callable[..., None]
"""Closes a connection, and logs the reason: a format and its values."""


class IncompleteFrameBudget:
    """Incomplete frames of all connections of a server.

    Each may keep ``incomplete_each`` bytes, which is more than most frames have; what exceeds that
    counts for ``incomplete_max``. If that is used up, the connection with the oldest frame in
    progress is closed: a frame over a working link is whole in no time.
    """

    def __init__(self, limits: RemotingLimits) -> None:
        self._limits = limits
        self._kept: dict[IncompleteFrame, int] = {}
        """Bytes that count; the frame begun first is the first."""
        self._total = 0

    @property
    def total(self) -> int:
        """Bytes that count."""
        return self._total

    def keep(self, frame: IncompleteFrame, size: int) -> None:
        """``size`` bytes of it are kept now; 0: it is complete, or dropped."""
        counts = max(0, size - self._limits.incomplete_each)
        if counts:
            self._total += counts - self._kept.get(frame, 0)
            self._kept[frame] = counts
        else:
            self._total -= self._kept.pop(frame, 0)
        while self._total > self._limits.incomplete_max:
            oldest = next(iter(self._kept))
            self._total -= self._kept.pop(oldest)
            oldest.refuse(
                "more than %d bytes of unfinished frames are kept, and its own was begun first",
                self._limits.incomplete_max,
            )


class IncompleteFrame:
    """The frame of one connection that is not whole yet. It must make progress.

    A timer runs only while there are such frames. Most frames come in one piece, and the others do
    not cost a timer each.
    """

    __slots__ = ("_budget", "_limits", "_loop", "_number", "_size", "_timer", "reads", "refuse")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: RemotingLimits,
        refuse: Refuse,
        budget: IncompleteFrameBudget | None,
    ) -> None:
        self._loop = loop
        self._limits = limits
        self._budget = budget
        self._size = 0
        self._number = 0
        """How many frames there were."""
        self._timer: asyncio.TimerHandle | None = None
        self.refuse = refuse
        self.reads = True
        """False while this side does not read, because the peer does not."""

    def keeps(self, size: int) -> None:
        """So many bytes of it have come; 0: it is complete, or dropped."""
        self._size = size
        if not size:
            self._number += 1
        if self._budget is not None:
            self._budget.keep(self, size)
        if size and self._timer is None:
            self._await_progress()

    def close(self) -> None:
        """Nothing more is read."""
        self.keeps(0)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _await_progress(self) -> None:
        due = self._loop.time() + self._limits.progress_seconds
        self._timer = self._loop.call_at(due, self._look, due, self._number, self._size)

    def _look(self, due: float, number: int, size: int) -> None:
        self._timer = None
        if not self._size:
            return
        limits = self._limits
        came = self._size - size
        # A process that stood still has not read bytes that may have come long ago.
        was_awake = self._loop.time() - due < limits.progress_seconds / 10
        if number == self._number and came < limits.progress_bytes and self.reads and was_awake:
            self.refuse(
                "of a frame that was begun %d bytes came in %g s, fewer than %d",
                came,
                limits.progress_seconds,
                limits.progress_bytes,
            )
        else:
            self._await_progress()
