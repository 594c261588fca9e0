"""How many frames a server handles in one turn of the event loop, of all its connections together.

Small requests that were sent without waiting for answers arrive by the thousand: uvloop reads a
connection up to 32 times before anything else is done, 8 MB in all, which is more than a second of
work. In that time no heartbeat leaves, and a leader is deposed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

TURN_BYTES = 1024
"""Pace: so many bytes of a body count as one frame more."""


class Turns:
    """``left`` frames may still be handled; who finds none left comes again in a later turn.

    Frames are counted over turns, and not in each: to tell turns apart would cost each of them a
    callback, and to wait once in so many frames costs nothing.
    """

    __slots__ = ("_frames", "_loop", "_waiting", "left")

    def __init__(self, loop: asyncio.AbstractEventLoop, frames: int) -> None:
        self._loop = loop
        self._frames = frames
        self.left = frames
        self._waiting: deque[Callable[[], None]] = deque()

    def wait(self, go_on: Callable[[], None]) -> None:
        """Calls ``go_on`` once, in a later turn in which there are some left; first come, first
        served."""
        if not self._waiting:
            self._loop.call_soon(self._next)
        self._waiting.append(go_on)

    def _next(self) -> None:
        self.left = self._frames
        # Who has still frames afterwards stands at the end, for the next turn.
        came, self._waiting = self._waiting, deque()
        while came and self.left > 0:
            came.popleft()()
        if came:
            if not self._waiting:
                self._loop.call_soon(self._next)
            came.extend(self._waiting)
            self._waiting = came
