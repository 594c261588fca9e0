"""A limit for the requests that a server handles in one turn of the event loop.

A client that does not wait for answers sends thousands of small requests at once. uvloop reads a
connection up to 32 times before anything else runs, 8 MB in all: more than a second of work. In
that time no heartbeat leaves, and a leader is deposed.

Once a turn is over, connections wait for a later turn, as in the scheduler FQ-CoDel (RFC 8290).
Each connection may use a small share of a turn. Light connections go before heavy ones, which used
much time just now. So a client with few requests waits for few turns, whatever others send. The
used time is CPU time, because on a busy machine a thread may be suspended within any request.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections import deque
from collections.abc import Callable

from broker.limits import RemotingLimits

TURN_BYTES = 1024
"""Pace: each so many bytes of a body count as one more frame."""

SHARE_MIN = 2
"""Pace: the smallest share of a waiting connection in a turn, in frames."""


class TurnLimit:
    """``left`` more frames may be handled in this turn. If none is left, or if the turn has lasted
    too long, a connection waits for a later turn.

    A connection calls :meth:`begin` with the loop's time. After a frame it calls :meth:`is_over` if
    ``left`` is at most ``low``, or if ``clock()`` is beyond ``ends_at``. Quiet turns cost nothing
    else.
    """

    __slots__ = (
        "_frames",
        "_heavy",
        "_light",
        "_loop",
        "_renewing",
        "_seconds",
        "_stop",
        "at",
        "clock",
        "cpu_clock",
        "ends_at",
        "is_limited",
        "left",
        "low",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: RemotingLimits,
        clock: Callable[[], float] | None = None,
        cpu_clock: Callable[[], float] | None = None,
    ) -> None:
        """``clock`` gives seconds that also advance within a turn; the default, the loop's time,
        does not. ``cpu_clock`` gives the CPU seconds of this thread; by default it is ``clock``."""
        self._loop = loop
        self._frames = limits.turn_frames
        self._seconds = limits.turn_seconds
        self._renewing = False
        self._stop = 0
        """A connection may go on while more than these are left."""
        self._light: deque[Callable[[], None]] = deque()
        self._heavy: deque[Callable[[], None]] = deque()
        self.clock = clock or loop.time
        self.cpu_clock = cpu_clock or self.clock
        self.at = -1.0
        """The loop's time in this turn."""
        self.ends_at = 0.0
        """The end of this turn by ``clock``."""
        self.left = self._frames
        self.low = self._frames // 2
        self.is_limited = limits.turn_frames < sys.maxsize or math.isfinite(limits.turn_seconds)
        """Whether it ever ends a turn."""

    def begin(self, now: float) -> None:
        """Begins a turn at ``now``, the loop's time, if that is not :attr:`at`."""
        self.at = now
        self.ends_at = self.clock() + self._seconds

    def is_over(self) -> bool:
        """Whether the served connection must wait. The next turn has all frames again."""
        if self.clock() > self.ends_at:
            self.left = 0
        self._renew_soon()
        return self.left <= self._stop

    def wait(self, go_on: Callable[[], None], *, light: bool) -> None:
        """Calls ``go_on`` once, in a later turn that has frames left. ``light``: the connection
        used little time."""
        (self._light if light else self._heavy).append(go_on)
        self._renew_soon()

    def _renew_soon(self) -> None:
        if not self._renewing:
            self._renewing = True
            self._loop.call_soon(self._next)

    def _next(self) -> None:
        self._renewing = False
        self.left = self._frames
        self.begin(self._loop.time())
        waiting = len(self._light) + len(self._heavy)
        if not waiting:
            return
        share = max(SHARE_MIN, self._frames // waiting)
        if self._heavy:
            # The heavy ones get half of the frames and time of a turn, however many are light.
            half, half_seconds, ends_at = self._frames // 2, self._seconds / 2, self.ends_at
            self.left -= half
            self.ends_at -= half_seconds
            self._serve(self._light, share)
            self.left = max(self.left, 0) + half  # a large frame may have taken more
            self.ends_at = max(ends_at, self.clock() + half_seconds)
            self._serve(self._heavy, share)
        self._serve(self._light, share)
        self._stop, self.low = 0, self._frames // 2
        if self._light or self._heavy:
            self._renew_soon()

    def _serve(self, waiting: deque[Callable[[], None]], share: int) -> None:
        """Serves the connections in ``waiting``, each for ``share`` frames, while frames are
        left."""
        for _ in range(len(waiting)):
            if self.left <= 0:
                break
            self._stop = self.low = max(0, self.left - share)
            waiting.popleft()()
