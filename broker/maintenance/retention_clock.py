"""The clock for the age of messages.

Messages that expired because a clock was ahead are lost for ever. So this clock follows the wall
clock, but runs at most twice as fast as real time. A wall clock that is ahead for ten seconds ages
messages by ten more seconds, whether it was ahead by an hour or a year. A wall clock that was
behind for ten seconds is reached again in as many.
"""

from __future__ import annotations

from collections.abc import Callable

PACE_MAX = 2.0
"""Pace: milliseconds of this clock in a real one. A correct clock that is a day ahead is reached in
a day."""


class RetentionClock:
    """It must be asked regularly; the time since the last call counts as real time."""

    def __init__(self, wall_clock: Callable[[], int], monotonic: Callable[[], float]) -> None:
        """``wall_clock`` gives ms since 1970, ``monotonic`` seconds."""
        self._wall_clock = wall_clock
        self._monotonic = monotonic
        self._asked_at = monotonic()
        self._now_ms = self._reached_ms = float(wall_clock())
        """``_reached_ms``: the latest time of the wall clock that this clock did not lag behind."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, never ahead of the wall clock."""
        asked_at = self._monotonic()
        passed_ms = (asked_at - self._asked_at) * 1000
        self._asked_at = asked_at
        wall_ms = float(self._wall_clock())
        known_ms = max(self._now_ms, self._reached_ms)
        self._now_ms = min(wall_ms, known_ms + passed_ms * PACE_MAX)
        if self._now_ms == wall_ms:
            self._reached_ms = max(self._reached_ms, wall_ms)
        return int(self._now_ms)
