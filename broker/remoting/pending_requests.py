"""The requests of one connection that wait for their answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from broker.remoting.protocol.errors import CallError, RequestTimeoutError
from broker.remoting.protocol.frame import Frame

OPAQUE_MAX = 2**31 - 1
"""Format: an i32, counted up and then from 0 again."""

PAUSE_SECONDS = 1e-6
"""Pace: the least time between two looks at all waiting requests, for each of them. Without it,
many requests to a silent peer would take a look each, which is a quadratic number of steps."""

Done: TypeAlias = Callable[[Frame | None, CallError | None], None]
"""Called once, with the answer or with the reason why none came."""


class PendingRequests:
    """Answers matched by opaque, and one timer for all deadlines.

    The timer is set for the earliest known deadline, and an answer does not touch it. So a request
    needs no timer of its own, which would be a third of its cost.
    """

    __slots__ = ("_address", "_armed_for", "_loop", "_time", "_timer", "next_opaque", "waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop, address: str) -> None:
        self._loop = loop
        self._time = loop.time
        self._address = address
        self.waiting: dict[int, tuple[Done, float]] = {}
        """By opaque: the waiter, and the deadline of the answer."""
        self.next_opaque = 0
        """The id of the next request, in the range of an i32. No waiting request has it."""
        self._timer: asyncio.TimerHandle | None = None
        self._armed_for = 0.0

    def take_opaque(self) -> int:
        """The id of a request that waits for no answer."""
        opaque = self.next_opaque
        self.next_opaque = opaque + 1 if opaque < OPAQUE_MAX else 0
        return opaque

    def add(self, timeout: float, done: Done) -> None:
        """Waits for the answer to the request that has got ``next_opaque``, for ``timeout``
        seconds."""
        opaque = self.next_opaque
        self.next_opaque = opaque + 1 if opaque < OPAQUE_MAX else 0
        deadline = self._time() + timeout
        self.waiting[opaque] = (done, deadline)
        if self._timer is None or deadline < self._armed_for:
            self._arm(deadline)

    def resolve(self, frame: Frame) -> bool:
        """Gives an answer to its waiter. Returns False if nobody waits for it (any more)."""
        waiting = self.waiting.pop(frame.opaque, None)
        if waiting is None:
            return False
        waiting[0](frame, None)
        return True

    def fail_all(self, failure: type[CallError], reason: str) -> None:
        """Ends every waiting request with a ``failure`` of its own."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self.waiting = self.waiting, {}
        for done, _ in waiting.values():
            done(None, failure(self._address, reason))

    def _arm(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed_for = deadline
        self._timer = self._loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now = max(self._loop.time(), self._armed_for)
        due = [opaque for opaque, (_, deadline) in self.waiting.items() if deadline <= now]
        for opaque in due:
            done, _ = self.waiting.pop(opaque)
            done(None, RequestTimeoutError(self._address, f"no answer to request {opaque} in time"))
        if self.waiting and self._timer is None:
            soonest = min(deadline for _, deadline in self.waiting.values())
            self._arm(max(soonest, now + len(self.waiting) * PAUSE_SECONDS))
