"""The results of measurements: rounds and their summaries."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

CPU_MESSAGES = 100_000
"""CPU time is reported per this number of messages."""


@dataclass(frozen=True, slots=True)
class Round:
    """One measurement. Latencies are those of requests, in milliseconds; None if not measured."""

    messages: int
    seconds: float
    client_cpu_seconds: float
    server_cpu_seconds: float
    p50_ms: float | None = None
    p99_ms: float | None = None
    payload_bytes: int = 0
    """Bytes of acknowledged bodies."""
    server_written_bytes: int = 0
    """Bytes that all servers together wrote to disks."""

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self.messages / self.seconds


@dataclass(frozen=True, slots=True)
class SteadyRound:
    """A part of a steady load. Latencies count from the moment at which a message was due."""

    began_at: float
    """By the monotonic clock, which all processes share, in seconds."""
    messages: int
    seconds: float
    p50_ms: float
    p99_ms: float
    p999_ms: float
    longest_ms: float
    server_cpu_seconds: float
    client_cpu_seconds: float
    memory_bytes: int
    """Of all servers, at the end."""


@dataclass(frozen=True, slots=True)
class DiskLatencies:
    """Of bare synced writes, in milliseconds, each from when it was due."""

    p50_ms: float
    p999_ms: float
    longest_ms: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> DiskLatencies:
        p50, p999, longest = percentiles_ms(seconds, 0.5, 0.999, 1.0)
        return cls(p50, p999, longest)


def percentiles_ms(seconds: Iterable[float], *shares: float) -> list[float]:
    """As :func:`percentiles`, of durations, in milliseconds."""
    return [1000 * each for each in percentiles(seconds, *shares)]


def percentiles(values: Iterable[float], *shares: float) -> list[float]:
    """For each share the least of the values that at least so many do not exceed. There must be
    one."""
    in_order = sorted(values)
    return [in_order[max(0, math.ceil(len(in_order) * share) - 1)] for share in shares]


@dataclass(frozen=True, slots=True)
class SteadyLoad:
    """Rates are messages a second."""

    peak: float
    rate: float
    rounds: Sequence[SteadyRound]
    disk: Sequence[DiskLatencies | None]
    """The baseline of each round: bare writes meanwhile; None if none was due."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Summary:
    """The rounds of one workload: medians, and the range of the rates."""

    name: str
    messages_per_second: float
    slowest: float
    fastest: float
    p50_ms: float | None
    p99_ms: float | None
    server_cpu_seconds_per_100k: float
    client_cpu_seconds_per_100k: float
    written_per_payload_byte: float | None = None
    """Bytes that all servers together wrote to disks, in all rounds; None if nothing was sent.
    """

    @property
    def cpu_seconds_per_100k(self) -> float:
        """The CPU seconds of servers and client together."""
        return self.server_cpu_seconds_per_100k + self.client_cpu_seconds_per_100k

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"cpu_seconds_per_100k": self.cpu_seconds_per_100k}


def summarise(name: str, rounds: Sequence[Round]) -> Summary:
    """The medians of ``rounds``, separate for each value."""
    rates = [each.rate for each in rounds]
    return Summary(
        name,
        statistics.median(rates),
        min(rates),
        max(rates),
        _median([each.p50_ms for each in rounds]),
        _median([each.p99_ms for each in rounds]),
        statistics.median(
            each.server_cpu_seconds * CPU_MESSAGES / each.messages for each in rounds
        ),
        statistics.median(
            each.client_cpu_seconds * CPU_MESSAGES / each.messages for each in rounds
        ),
        _written(rounds),
    )


def _written(rounds: Sequence[Round]) -> float | None:
    """The mean over all rounds, because the log is prepared in steps that are larger than a short
    round."""
    payload = sum(each.payload_bytes for each in rounds)
    return sum(each.server_written_bytes for each in rounds) / payload if payload else None


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None
