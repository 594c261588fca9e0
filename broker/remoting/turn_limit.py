"""How much a server handles in one turn of the event loop, of all its connections together.

Small requests that were sent without waiting for answers arrive by the thousand. uvloop reads a
connection up to 32 times before anything else is done, 8 MB in all: more than a second of work. In
that time no heartbeat leaves, and a leader is deposed.

Connections that find the turn over wait for a later one, as in the scheduler FQ-CoDel (RFC 8290):
each may use a small share of a turn, and the light ones go before those that took up much just now.
So a client with few requests waits for few turns, however much others send. Who took up much is
told by the time on the processor: on a busy machine a thread may stand still within any request.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from broker.limits import RemotingLimits

TURN_BYTES = 1024
"""Pace: so many bytes of a body count as one frame more."""

SHARE_MIN = 2
"""Pace: frames of a connection that has waited, where very many wait."""


class TurnLimit:
    """``left`` frames may still be handled; a connection that finds none left comes again in a
    later turn. So does one that finds that the turn has lasted too long.

    A user calls :meth:`begin` with the loop's time, :meth:`is_over` after a frame with which
    ``left`` is ``low`` or less, or ``clock()`` beyond ``ends_at``. Quiet turns cost nothing else.
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
        """``clock`` gives seconds also within a turn; by default it is the loop's, which stands
        still there. ``cpu_clock`` gives those that this thread ran; by default it is ``clock``."""
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
        """By ``clock``."""
        self.left = self._frames
        self.low = self._frames // 2

    def begin(self, now: float) -> None:
        """In a turn at ``now`` by the loop, which is not :attr:`at`."""
        self.at = now
        self.ends_at = self.clock() + self._seconds

    def is_over(self) -> bool:
        """Whether the connection that is served has to wait. The next turn has all frames again."""
        if self.clock() > self.ends_at:
            self.left = 0
        self._renew_soon()
        return self.left <= self._stop

    def wait(self, go_on: Callable[[], None], *, light: bool) -> None:
        """Calls ``go_on`` once, in a later turn in which there are some left. ``light``: it has
        taken up little."""
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
            # However many are light, the others have half of the turn, of its time as well.
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
        """As many as have come, each for its share, while some are left."""
        for _ in range(len(waiting)):
            if self.left <= 0:
                break
            self._stop = self.low = max(0, self.left - share)
            waiting.popleft()()
