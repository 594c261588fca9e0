"""How late the event loop runs what is due: the time in which nobody was served."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from dledger.histogram import Histogram

INTERVAL_SECONDS = 0.1
"""Between two timers. A stall that begins and ends between them is not seen."""


class EventLoopLag:
    """Sets a timer again and again, and measures how late it comes."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float]) -> None:
        """``clock`` gives seconds that never run backward."""
        self.seconds = Histogram()
        self._loop = loop
        self._clock = clock
        self._due_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begins to measure."""
        self._due_at = self._clock() + INTERVAL_SECONDS
        self._timer = self._loop.call_later(INTERVAL_SECONDS, self._fired)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fired(self) -> None:
        # A loop that counts whole milliseconds may be early by one.
        self.seconds.observe(max(self._clock() - self._due_at, 0.0))
        self.start()
