"""Something that a process does again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Periodic:
    """Calls ``act`` every ``seconds``, from :meth:`start` to :meth:`stop`.

    The next call is arranged before ``act`` runs, so an error in it does not end the series.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, seconds: float, act: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._seconds = seconds
        self._act = act
        self._timer: asyncio.Handle | None = None

    def start(self) -> None:
        """The first call comes after ``seconds``."""
        self._timer = self._loop.call_later(self._seconds, self._fired)

    def stop(self) -> None:
        """Ends it; it may be started again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def hurry(self) -> None:
        """Moves the next call to the next turn of the loop, if it was started."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = self._loop.call_soon(self._fired)

    def _fired(self) -> None:
        self.start()
        self._act()
