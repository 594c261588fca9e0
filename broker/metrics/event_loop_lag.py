"""The lag of the event loop: how late it runs due timers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from dledger.histogram import Histogram

INTERVAL_SECONDS = 0.1
"""The seconds between two timers. A stall that begins and ends between them is missed."""


class EventLoopLag:
    """Sets a timer regularly, and measures how late it fires."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float]) -> None:
        """``clock`` gives seconds of a monotonic clock."""
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
        # A loop with a resolution of milliseconds may be early by one.
        self.seconds.observe(max(self._clock() - self._due_at, 0.0))
        self.start()
