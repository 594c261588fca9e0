"""The growth of the cost of a message with another quantity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from broker.bench.results import CPU_MESSAGES, Summary

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Point:
    """One measurement with ``at`` queues, bytes, groups or connections."""

    at: int
    summary: Summary
    memory_bytes: int
    """The memory of all servers at the end."""
    restart_ms: float | None = None
    """Milliseconds from the restart of all killed servers to the next acknowledgement; None if not
    measured."""

    def to_json(self) -> dict[str, Any]:
        return {
            "at": self.at,
            **self.summary.to_json(),
            "memory_bytes": self.memory_bytes,
            "restart_ms": self.restart_ms,
        }


@dataclass(frozen=True, slots=True)
class Curve:
    """Points from the lowest to the highest; at least one."""

    name: str
    points: Sequence[Point]
    per_byte: bool = False
    """Whether ``at`` is the size of a message, so that bytes are compared instead of messages."""

    @property
    def dearness(self) -> float:
        """The highest CPU time of the servers for a message, relative to that at the first point.

        For sizes it is the CPU time for a byte, without the cost of a message of the smallest size.
        Then the second point counts as the first, and three points are needed.
        """
        costs = self.costs
        return max(costs) / costs[0] if costs and costs[0] > 0 else 1.0

    @property
    def costs(self) -> list[float]:
        """The CPU seconds of the servers for a message, or for a MiB beyond the smallest size."""
        costs = [each.summary.server_cpu_seconds_per_100k / CPU_MESSAGES for each in self.points]
        if not self.per_byte:
            return costs
        smallest = self.points[0].at
        return [
            (cost - costs[0]) * MIB / (point.at - smallest)
            for cost, point in zip(costs[1:], self.points[1:], strict=True)
        ]

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "points": [each.to_json() for each in self.points],
            "dearness": self.dearness,
        }
