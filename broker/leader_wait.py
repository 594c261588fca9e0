"""Requests that only the leader can serve: served here, forwarded, or held until a leader is known.

A request waits for as long as an election takes. If no leader appears in that time, all requests
are refused at once until there is a leader. A new leader that does not serve yet also holds the
requests that followers forwarded to it: only it knows when it serves. No request is forwarded
twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from broker.change_notice import ChangeNotice
from broker.errors import NOT_HERE
from broker.limits import FORWARDING, ForwardingLimits
from dledger.node.state_machine import Leadership

T = TypeVar("T")


class LeaderWait:
    """Holds the requests of one wire of one broker."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        node: str,
        leadership: Callable[[], Leadership],
        limits: ForwardingLimits = FORWARDING,
    ) -> None:
        """``leadership`` gives the present leadership; ``node`` is the name of this node."""
        self._loop = loop
        self._node = node
        self._leadership = leadership
        self._limits = limits
        self._notice = ChangeNotice(loop)
        self._waiting = 0
        self._gave_up = False
        """No leader appeared in time, and none has answered since."""

    def leadership_changed(self) -> None:
        """Tries the held requests again."""
        if self._leadership().leader is not None:
            self._gave_up = False
        self._notice.changed()

    async def serve_or_forward(
        self,
        serve: Callable[[], Awaitable[T]],
        forward: Callable[[Exception], Awaitable[T | None]],
        *,
        forwarded: bool,
    ) -> T:
        """The answer of ``serve``, or else of ``forward``, which gets the refusal of ``serve`` and
        forwards the request; it returns None where nothing was done.

        ``forwarded``: another node has forwarded the request. Raises the errors of both, and one of
        :data:`~broker.errors.NOT_HERE` if the request may not wait or no leader appeared in time.
        """
        until = None
        while True:
            before = self._leadership()
            try:
                return await serve()
            except NOT_HERE as refusal:
                if not forwarded:
                    answer = await forward(refusal)
                    if answer is not None:
                        self._gave_up = False
                        return answer
                elif before.leader != self._node:
                    raise
                now = self._loop.time()
                until = now + self._limits.wait_seconds if until is None else until
                self._gave_up |= now >= until
                if self._gave_up or self._waiting >= self._limits.waiting_max:
                    raise
            await self._wait(before, until - now)

    async def _wait(self, before: Leadership, seconds: float) -> None:
        self._waiting += 1
        try:
            await self._notice.wait_until(lambda: self._leadership() != before, seconds)
        finally:
            self._waiting -= 1
