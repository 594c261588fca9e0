"""A token bucket with a virtual clock (Zhang 1990, and GCRA of ATM).

The bucket keeps one number: until when all that was taken is paid for. It may be up to
:data:`BURST_SECONDS` ahead of the time for free. What is more is debt, which the taker waits off.
"""

from __future__ import annotations

BURST_SECONDS = 1.0
"""Pace: the worth of so much time may be taken at once."""

DEBT_SECONDS = 30.0
"""Pace: a single taker of very much is in debt for no longer."""


class TokenBucket:
    """Of one rate."""

    __slots__ = ("_paid_until", "_rate")

    def __init__(self, rate: float) -> None:
        """``rate``: units in a second, above 0."""
        self._rate = rate
        self._paid_until = 0.0

    def debt(self, now: float) -> float:
        """Seconds until something may be taken again; 0 if it may be now."""
        return max(self._paid_until - BURST_SECONDS - now, 0.0)

    def take(self, units: float, now: float) -> float:
        """Takes them in any case; returns the seconds of debt afterwards. ``now`` is in seconds,
        and never earlier than before."""
        until = max(self._paid_until, now) + units / self._rate
        self._paid_until = min(until, now + BURST_SECONDS + DEBT_SECONDS)
        return self.debt(now)

    def is_idle(self, now: float) -> bool:
        """Whether it is as if nothing was ever taken."""
        return self._paid_until <= now
