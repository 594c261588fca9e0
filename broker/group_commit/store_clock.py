"""The store time of records: it never goes back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class StoreClock:
    """A leader's clock of milliseconds.

    It is never behind an earlier record's time, so that a queue can be searched by time, and that a
    message once due stays due. If the wall clock is behind, because it was set back or an earlier
    leader's was ahead, this one runs half as fast until the wall clock has caught up. So a message
    that waits for some seconds does not wait for as long as a clock was wrong.
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
        """When the wall clock was found to be behind, and the time then: from there it goes on."""

    def reached(self, now_ms: int) -> None:
        """An earlier leader's clock gave that time and wrote it into the log beside the records."""
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
