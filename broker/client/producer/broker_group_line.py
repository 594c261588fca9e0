"""The requests of a producer to one broker group: so many in progress, the others in line.

A leader that falls silent for half a second leaves thousands of requests without an answer. Each
is retried, and the client first asks whether it is stored. If new requests left at once meanwhile,
the client would have no time for the answers: new requests would time out and be retried too, and
the producer would never recover. So they wait in line. That costs nothing, and nobody has to ask
whether a request is stored that has never left.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from broker.client.message import MessageQueue
from broker.client.producer.pending_send import PendingSend

IN_FLIGHT_MAX = 1_024
"""First tries in progress: four times what keeps a broker busy. An outage leaves all in doubt."""

RETRIES_AT_ONCE = 256
"""Retries in progress. More at once would take longer than an answer may take."""

LOOK_SECONDS = 0.5
"""How often a line is looked through: for deadlines, and for a leader that is gone."""


class Waiting(NamedTuple):
    """A request in line, and the queue that was chosen for it."""

    delivery: PendingSend
    queue: MessageQueue


class BrokerGroupLine:
    """On the event loop."""

    __slots__ = ("_turns", "in_flight", "retrying", "timer", "waiting")

    def __init__(self) -> None:
        self.in_flight = 0
        """First tries without an answer."""
        self.retrying = 0
        """Retries that have a turn or wait for one."""
        self._turns = asyncio.Semaphore(RETRIES_AT_ONCE)
        self.waiting: deque[Waiting] = deque()
        self.timer: asyncio.TimerHandle | None = None

    @property
    def is_full(self) -> bool:
        """Whether a first try has to wait."""
        return self.in_flight >= IN_FLIGHT_MAX or self.retrying >= RETRIES_AT_ONCE

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """The turn of a retry. Turns come in the order in which they were asked for."""
        self.retrying += 1
        try:
            async with self._turns:
                yield
        finally:
            self.retrying -= 1

    def expired(self, now: float) -> list[PendingSend]:
        """Takes those whose deadline has passed."""
        expired = [each.delivery for each in self.waiting if each.delivery.deadline <= now]
        if expired:
            self.waiting = deque(each for each in self.waiting if each.delivery.deadline > now)
        return expired

    def leave(self) -> list[Waiting]:
        """Takes all."""
        left = [*self.waiting]
        self.waiting.clear()
        return left
