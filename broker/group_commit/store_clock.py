"""The store time of records: it never goes back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class StoreClock:
    """A leader's clock of milliseconds.

    It is never behind the time of an earlier record. So a queue can be searched by time, and a due
    message stays due. The wall clock may be behind: it was set back, or an earlier leader's was
    ahead. Then this clock runs at half speed until the wall clock has caught up. So a message with
    a delay of seconds does not wait for the whole error of a clock.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        wall_clock: Callable[[], int],
        stored_ms: Callable[[], int],
    ) -> None:
        """``stored_ms`` gives the newest time of the applied log."""
        self._loop = loop
        self._wall_clock = wall_clock
        self._stored_ms = stored_ms
        self._last_ms = 0
        self._behind_since: tuple[float, int] | None = None
        """While the wall clock is behind: the loop's time when that was found, and this clock's
        time then."""

    def reached(self, now_ms: int) -> None:
        """The clock is not behind ``now_ms`` from now on: an earlier leader wrote that time into
        the log."""
        self._last_ms = max(self._last_ms, now_ms)

    def now_ms(self) -> int:
        """The time of a record stored now."""
        wall_ms = self._wall_clock()
        now_ms = max(wall_ms, self._last_ms, self._stored_ms())
        if now_ms == wall_ms:
            self._behind_since = None
        else:
            seconds = self._loop.time()
            began, began_ms = self._behind_since or (seconds, now_ms)
            slow_ms = began_ms + int((seconds - began) * 500)
            if self._behind_since is None or slow_ms < now_ms:
                # A leader between two terms of this one may have been further ahead.
                self._behind_since = (seconds, now_ms)
            now_ms = max(now_ms, slow_ms)
        self._last_ms = now_ms
        return now_ms
