"""A token bucket with a virtual clock (Zhang 1990, and GCRA of ATM).

The bucket has one number: the time at which everything taken is paid for. It may be up to
:data:`BURST_SECONDS` ahead of the present time. The rest is debt, for which the taker waits.
"""

from __future__ import annotations

BURST_SECONDS = 1.0
"""Pace: the burst that may be taken at once, in seconds of the rate."""

DEBT_SECONDS = 30.0
"""Pace: the longest debt in seconds, also after a very large take."""


class TokenBucket:
    """The bucket of one rate."""

    __slots__ = ("_paid_until", "_rate")

    def __init__(self, rate: float) -> None:
        """``rate``: units in a second, above 0."""
        self._rate = rate
        self._paid_until = 0.0

    def debt(self, now: float) -> float:
        """The seconds until units may be taken again; 0: now."""
        return max(self._paid_until - BURST_SECONDS - now, 0.0)

    def take(self, units: float, now: float) -> float:
        """Takes units in any case; returns the seconds of debt afterwards. ``now`` is in seconds,
        and never earlier than before."""
        until = max(self._paid_until, now) + units / self._rate
        self._paid_until = min(until, now + BURST_SECONDS + DEBT_SECONDS)
        return self.debt(now)

    def is_idle(self, now: float) -> bool:
        """Whether the bucket is as if nothing was ever taken."""
        return self._paid_until <= now
