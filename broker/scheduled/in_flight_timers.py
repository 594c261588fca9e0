"""Timed messages that are pending."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush

from broker.group_commit.pending_batch import SendWaiter
from broker.group_commit.settling_waiter import SettlingWaiter


class InFlightTimers:
    """Tracks the earliest delivery time of pending timed messages.

    The progress must not pass that time: it would then cover a message that is not delivered.
    Messages that are added later have later delivery times than all due ones.
    """

    def __init__(self) -> None:
        self.on_settled: Callable[[], None] = lambda: None
        """Called when a pending message is applied or refused."""
        self._times: list[int] = []
        self._settled: list[int] = []

    def __bool__(self) -> bool:
        return len(self._times) > len(self._settled)

    def tracked(self, deliver_ms: int, waiter: SendWaiter) -> SettlingWaiter:
        """The waiter for a message, instead of ``waiter``. The message is tracked until it is
        settled."""
        heappush(self._times, deliver_ms)
        return SettlingWaiter(waiter, partial(self._settle, deliver_ms))

    def first_ms(self) -> int | None:
        """The earliest delivery time in ms; None without pending messages."""
        while self._settled and self._settled[0] == self._times[0]:
            heappop(self._settled)
            heappop(self._times)
        return self._times[0] if self._times else None

    def _settle(self, deliver_ms: int) -> None:
        heappush(self._settled, deliver_ms)
        self.first_ms()
        self.on_settled()
