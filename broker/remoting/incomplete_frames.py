"""The time limit of incomplete frames. The limit of their bytes is in ``byte_budget.py``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from broker.limits import RemotingLimits
from broker.remoting.byte_budget import ByteBudget

Refuse: TypeAlias = Callable[..., None]
"""Closes a connection, and logs the reason: a format and its values."""


class IncompleteFrame:
    """The incomplete frame of one connection. It must make progress.

    One timer runs while there are incomplete frames. Most frames arrive whole, and the others do
    not cost a timer each.
    """

    __slots__ = ("_budget", "_limits", "_loop", "_number", "_size", "_timer", "reads", "refuse")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: RemotingLimits,
        refuse: Refuse,
        budget: ByteBudget | None,
    ) -> None:
        self._loop = loop
        self._limits = limits
        self._budget = budget
        self._size = 0
        self._number = 0
        """The number of incomplete frames so far."""
        self._timer: asyncio.TimerHandle | None = None
        self.refuse = refuse
        self.reads = True
        """False while this side does not read, because the peer does not read either."""

    def keeps(self, size: int) -> None:
        """``size`` bytes of it have come; 0: the frame is complete or dropped."""
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
        # After a pause of the process, bytes that came long ago may not be read yet.
        was_awake = self._loop.time() - due < limits.progress_seconds / 10
        if number == self._number and came < limits.progress_bytes and self.reads and was_awake:
            self.refuse(
                "%d bytes of an incomplete frame came in %g s, fewer than %d",
                came,
                limits.progress_seconds,
                limits.progress_bytes,
            )
        else:
            self._await_progress()
