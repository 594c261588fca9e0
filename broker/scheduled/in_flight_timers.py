"""Timed messages that are pending."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush

from broker.group_commit.pending_batch import SendWaiter, StoredEarlier
from dledger.errors import ProposeError


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

    def tracked(self, deliver_ms: int, waiter: SendWaiter) -> SendWaiter:
        """Tracks a message until the returned waiter gets its outcome."""
        heappush(self._times, deliver_ms)
        return _TrackedWaiter(self, deliver_ms, waiter)

    def first_ms(self) -> int | None:
        """The earliest delivery time in ms; None without pending messages."""
        while self._settled and self._settled[0] == self._times[0]:
            heappop(self._settled)
            heappop(self._times)
        return self._times[0] if self._times else None

    def settled(self, deliver_ms: int) -> None:
        """A tracked message is applied or refused."""
        heappush(self._settled, deliver_ms)
        self.first_ms()
        self.on_settled()


class _TrackedWaiter:
    """Passes the outcome of a message on to its waiter, and ends the tracking."""

    __slots__ = ("deliver_ms", "in_flight", "waiter")

    def __init__(self, in_flight: InFlightTimers, deliver_ms: int, waiter: SendWaiter) -> None:
        self.in_flight = in_flight
        self.deliver_ms = deliver_ms
        self.waiter = waiter

    def stored(
        self, first_offset: int, positions: Sequence[int], earlier: StoredEarlier | None = None
    ) -> None:
        self.in_flight.settled(self.deliver_ms)
        self.waiter.stored(first_offset, positions, earlier)

    def failed(self, error: ProposeError) -> None:
        self.in_flight.settled(self.deliver_ms)
        self.waiter.failed(error)
