"""The frames that a server handles in one turn of the event loop, of all its connections together.

Small requests that were sent without waiting for answers arrive by the thousand. uvloop reads a
connection up to 32 times before anything else is done, 8 MB in all: more than a second of work. In
that time no heartbeat leaves, and a leader is deposed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

TURN_BYTES = 1024
"""Pace: so many bytes of a body count as one frame more."""


class TurnLimit:
    """``left`` frames may still be handled; a connection that finds none left comes again in a
    later turn.

    A user that finds :attr:`low` or fewer left calls :meth:`renew_soon`: the next turn has all of
    them again. So quiet turns cost nothing, and busy ones one callback.
    """

    __slots__ = ("_frames", "_loop", "_renewing", "_waiting", "left", "low")

    def __init__(self, loop: asyncio.AbstractEventLoop, frames: int) -> None:
        self._loop = loop
        self._frames = frames
        self._renewing = False
        self.left = frames
        self.low = frames // 2
        self._waiting: deque[Callable[[], None]] = deque()

    def renew_soon(self) -> None:
        """In the next turn of the loop there are as many as at first."""
        if not self._renewing:
            self._renewing = True
            self._loop.call_soon(self._next)

    def wait(self, go_on: Callable[[], None]) -> None:
        """Calls ``go_on`` once, in a later turn in which there are some left; first come, first
        served."""
        self._waiting.append(go_on)
        self.renew_soon()

    def _next(self) -> None:
        self._renewing = False
        self.left = self._frames
        # A connection with further frames goes to the end, for the next turn.
        came, self._waiting = self._waiting, deque()
        while came and self.left > 0:
            came.popleft()()
        if came:
            came.extend(self._waiting)
            self._waiting = came
            self.renew_soon()
