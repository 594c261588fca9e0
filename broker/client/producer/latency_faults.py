"""Brokers that a producer avoids for a while (``LatencyFaultTolerance``)."""

from __future__ import annotations

from collections.abc import Sequence

FAILED_LATENCY_MS = 30_000
"""The latency of a send that failed."""

LEVELS = (
    (15_000, 600_000),
    (3_000, 180_000),
    (2_000, 120_000),
    (1_000, 60_000),
    (550, 30_000),
)
"""(latency, how long the broker is avoided), in milliseconds; RocketMQ's ``latencyMax`` and
``notAvailableDuration``. RocketMQ's lower levels (50 and 100 ms) avoid nothing."""


class LatencyFaults:
    """The latency of each broker, by name. The caller gives the time in milliseconds."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until: dict[str, int] = {}

    def record(self, broker: str, latency_ms: int, now_ms: int) -> None:
        """Records the latency of a send, or ``FAILED_LATENCY_MS``. The latest one counts."""
        for level_ms, unused_ms in LEVELS:
            if latency_ms >= level_ms:
                self._until[broker] = now_ms + unused_ms
                return
        self._until.pop(broker, None)

    def available(self, broker: str, now_ms: int) -> bool:
        return self._until.get(broker, 0) <= now_ms

    def least_bad(self, brokers: Sequence[str]) -> str:
        """Of unavailable brokers, the one that will be available first."""
        return min(brokers, key=lambda broker: self._until.get(broker, 0))
