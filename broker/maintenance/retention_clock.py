"""The clock by which messages become old.

Nothing brings back what a clock that was ahead has given up. So this one follows the wall clock,
but goes at most twice as fast as time passes. One that is set ahead for ten seconds makes messages
older by ten seconds more, whether it was an hour ahead or a year.
"""

from __future__ import annotations

from collections.abc import Callable

PACE_MAX = 2.0
"""Pace: milliseconds in a true one. A clock that is rightly a day ahead is followed in a day."""


class RetentionClock:
    """It is to be asked now and then; what passed since it was last asked counts as true time."""

    def __init__(self, wall_clock: Callable[[], int], monotonic: Callable[[], float]) -> None:
        """``wall_clock`` gives ms since 1970, ``monotonic`` seconds."""
        self._wall_clock = wall_clock
        self._monotonic = monotonic
        self._asked_at = monotonic()
        self._now_ms = float(wall_clock())

    def now_ms(self) -> int:
        """Milliseconds since 1970, never ahead of the wall clock."""
        asked_at = self._monotonic()
        passed_ms = (asked_at - self._asked_at) * 1000
        self._asked_at = asked_at
        self._now_ms = min(float(self._wall_clock()), self._now_ms + passed_ms * PACE_MAX)
        return int(self._now_ms)
