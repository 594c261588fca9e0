"""The requests of one connection that wait for their answer."""

from __future__ import annotations

import asyncio

from broker.remoting.errors import CallError, RequestTimeoutError
from broker.remoting.frame import Frame

OPAQUE_MAX = 2**31 - 1


class PendingRequests:
    """Answers matched by opaque, and one timer for all deadlines.

    The timer is armed for the earliest deadline known when it was set; an answer does not touch
    it. So a request costs no timer of its own, which would be a third of its whole price.
    """

    __slots__ = ("_address", "_armed_for", "_loop", "_next_opaque", "_timer", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop, address: str) -> None:
        self._loop = loop
        self._address = address
        self._waiting: dict[int, tuple[asyncio.Future[Frame], float]] = {}
        self._next_opaque = 0
        self._timer: asyncio.TimerHandle | None = None
        self._armed_for = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    def next_opaque(self) -> int:
        """An id that no waiting request has, in the range of an i32."""
        opaque = self._next_opaque
        self._next_opaque = opaque + 1 if opaque < OPAQUE_MAX else 0
        return opaque

    def add(self, opaque: int, timeout: float) -> asyncio.Future[Frame]:
        """The future answer to ``opaque``; it fails after ``timeout`` seconds without one."""
        future: asyncio.Future[Frame] = self._loop.create_future()
        deadline = self._loop.time() + timeout
        self._waiting[opaque] = (future, deadline)
        if self._timer is None or deadline < self._armed_for:
            self._arm(deadline)
        return future

    def resolve(self, frame: Frame) -> bool:
        """Hands an answer to who waits for it; false when nobody does (any more)."""
        waiting = self._waiting.pop(frame.opaque, None)
        if waiting is None:
            return False
        future = waiting[0]
        if not future.done():  # its caller may have given up on it
            future.set_result(frame)
        return True

    def fail_all(self, failure: type[CallError], what: str) -> None:
        """Ends every waiting request with a ``failure`` of its own."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, {}
        for future, _ in waiting.values():
            if not future.done():
                future.set_exception(failure(self._address, what))

    def _arm(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed_for = deadline
        self._timer = self._loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now = max(self._loop.time(), self._armed_for)
        due = [opaque for opaque, (_, deadline) in self._waiting.items() if deadline <= now]
        for opaque in due:
            future, _ = self._waiting.pop(opaque)
            if not future.done():
                future.set_exception(
                    RequestTimeoutError(self._address, f"no answer to request {opaque} in time")
                )
        if self._waiting:
            self._arm(min(deadline for _, deadline in self._waiting.values()))
