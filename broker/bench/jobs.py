"""The jobs of the worker and its reports: one JSON document a line, both ways."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import orjson

CPU_MESSAGES = 100_000
"""CPU time is reported for this number of messages."""


@dataclass(frozen=True, slots=True)
class LoadShape:
    """How messages are sent: ``batch`` in a request, ``in_flight`` requests at once."""

    batch: int
    in_flight: int

    @property
    def name(self) -> str:
        if self.batch > 1:
            return f"batches of {self.batch}, {self.in_flight} in flight"
        return f"single messages, {self.in_flight} in flight"


@dataclass(frozen=True, slots=True)
class ProduceJob:
    """Sends messages of ``size`` bytes as fast as they are acknowledged, round after round."""

    topic: str
    size: int
    shape: LoadShape
    warm_up_seconds: float
    seconds: float
    rounds: int
    pids: tuple[int, ...]
    """That of the servers; their CPU time is reported."""


@dataclass(frozen=True, slots=True)
class FillJob:
    """Sends ``count`` messages of ``size`` bytes, for a replay."""

    topic: str
    size: int
    count: int


@dataclass(frozen=True, slots=True)
class ReplayJob:
    """Reads all ``count`` messages of a topic from its beginning, ``rounds`` times."""

    topic: str
    count: int
    rounds: int
    pids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ProbeJob:
    """Sends one message after the other until the worker says stop. When asked about a moment, it
    answers how long after it the first message was acknowledged that was sent after it.
    """

    topic: str
    size: int


@dataclass(frozen=True, slots=True)
class Round:
    """One measurement. Latencies are of requests, in milliseconds; None if none was taken."""

    messages: int
    seconds: float
    client_cpu_seconds: float
    server_cpu_seconds: float
    p50_ms: float | None = None
    p99_ms: float | None = None

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self.messages / self.seconds


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

    @property
    def cpu_seconds_per_100k(self) -> float:
        """Servers and client together."""
        return self.server_cpu_seconds_per_100k + self.client_cpu_seconds_per_100k

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"cpu_seconds_per_100k": self.cpu_seconds_per_100k}


def summarise(name: str, rounds: Sequence[Round]) -> Summary:
    """The medians of ``rounds``, each figure by itself."""
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
    )


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


Job = ProduceJob | FillJob | ReplayJob | ProbeJob
_JOBS: dict[str, type[Job]] = {
    job.__name__: job for job in (ProduceJob, FillJob, ReplayJob, ProbeJob)
}


def encode_job(job: Job) -> bytes:
    return orjson.dumps(
        {"job": type(job).__name__, **asdict(job)}, option=orjson.OPT_APPEND_NEWLINE
    )


def decode_job(line: bytes) -> Job:
    """The job of a line that :func:`encode_job` made."""
    fields: dict[str, Any] = orjson.loads(line)
    kind = _JOBS[fields.pop("job")]
    if "shape" in fields:
        fields["shape"] = LoadShape(**fields["shape"])
    if "pids" in fields:
        fields["pids"] = tuple(fields["pids"])
    return kind(**fields)
