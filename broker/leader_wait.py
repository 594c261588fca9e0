"""Requests that only the leader can serve: served here, forwarded, or held until a leader is known.

A request waits for as long as an election takes. If no leader appears in that time, all requests
are refused at once until there is a leader. A new leader that does not serve yet also holds the
requests that followers forwarded to it: only it knows when it serves. No request is forwarded
twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias, TypeVar

from broker.errors import NOT_HERE
from broker.limits import FORWARDING, ForwardingLimits
from dledger.settle import settle

T = TypeVar("T")

Resume: TypeAlias = Callable[[bool], None]
"""Called once for a held request. True: the leadership has changed, so it is tried again. False: it
is refused."""


class LeaderWait:
    """Holds the requests of one wire of one broker."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        own: str,
        leader: Callable[[], str | None],
        limits: ForwardingLimits = FORWARDING,
    ) -> None:
        """``leader`` gives the name or address of the leader, None while no leader is known.
        ``own`` is that of this node."""
        self._loop = loop
        self._own = own
        self._leader = leader
        self._limits = limits
        self._held: dict[Resume, int] = {}
        """The held requests, in order, with the bytes of their bodies."""
        self._held_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        """Runs from the first held request until a leader is known: then they are refused."""
        self._changes = 0
        """The number of changes of leadership."""
        self._gave_up = False
        """No leader appeared in time for a request, and none has answered since."""
        self.closed = False
        """Whether the broker stops. No request is held then."""

    def hold(self, resume: Resume, size: int = 0) -> bool:
        """Holds a request with ``size`` bytes. Returns False if it must be refused: no leader
        appeared in time, too many requests wait, or the broker stops."""
        limits = self._limits
        if (
            self._gave_up
            or self.closed
            or len(self._held) >= limits.waiting_max
            or self._held_bytes + size > limits.waiting_bytes_max
        ):
            return False
        self._held[resume] = size
        self._held_bytes += size
        if self._timer is None:
            self._timer = self._loop.call_later(limits.wait_seconds, self._give_up)
        return True

    def leadership_changed(self) -> None:
        """Tries the held requests again."""
        self._changes += 1
        if self._leader() is not None:
            self._gave_up = False
            self._stop_timer()
        self._resume_all(again=True)

    def answered(self) -> None:
        """The leader has answered a forwarded request."""
        self._gave_up = False

    def close(self) -> None:
        """Refuses the held requests."""
        self.closed = True
        self._stop_timer()
        self._resume_all(again=False)

    async def serve_or_forward(
        self,
        serve: Callable[[], Awaitable[T]],
        forward: Callable[[Exception], Awaitable[T | None]] | None,
    ) -> T:
        """The answer of ``serve``, or else of ``forward``, which gets the refusal of ``serve`` and
        forwards the request; it returns None where nothing was done.

        ``forward`` is None if another node has forwarded the request. Raises the errors of both,
        and one of :data:`~broker.errors.NOT_HERE` if the request may not wait or no leader appeared
        in time.
        """
        while True:
            changes = self._changes
            try:
                return await serve()
            except NOT_HERE as refusal:
                if forward is not None:
                    answer = await forward(refusal)
                    if answer is not None:
                        self.answered()
                        return answer
                elif self._leader() != self._own:
                    raise
                if changes == self._changes and not await self._next_change():
                    raise

    async def _next_change(self) -> bool:
        """Holds a request. Returns whether the leadership has changed; otherwise the request is
        refused."""
        changed: asyncio.Future[bool] = self._loop.create_future()
        resume: Resume = partial(settle, changed, error=None)
        if not self.hold(resume):
            return False
        try:
            return await changed
        finally:
            self._held.pop(resume, None)  # its client may have gone

    def _give_up(self) -> None:
        self._timer = None
        self._gave_up = bool(self._held)
        self._resume_all(again=False)

    def _resume_all(self, *, again: bool) -> None:
        held, self._held, self._held_bytes = self._held, {}, 0
        for resume in held:
            resume(again)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
