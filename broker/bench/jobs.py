"""The jobs of the worker: one JSON document in each line."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, get_args

import orjson

from broker.client.config import ConsumerConfig

PULL_MESSAGES = ConsumerConfig().pull_messages_max


@dataclass(frozen=True, slots=True)
class LoadShape:
    """How messages are sent: ``batch`` messages in a request, ``in_flight`` requests at once."""

    batch: int
    in_flight: int

    @property
    def name(self) -> str:
        if self.batch > 1:
            return f"batches of {self.batch}, {self.in_flight} in flight"
        return f"single messages, {self.in_flight} in flight"


@dataclass(frozen=True, slots=True)
class ProduceJob:
    """Sends messages of ``size`` bytes as fast as they are acknowledged, round after round, to
    the topics in turn."""

    topics: tuple[str, ...]
    size: int
    shape: LoadShape
    warm_up_seconds: float
    seconds: float
    rounds: int
    pids: tuple[int, ...]
    """The pids of the servers, whose CPU time is reported."""


@dataclass(frozen=True, slots=True)
class SteadyJob:
    """Sends single messages of ``size`` bytes to the topics in turn, ``rate`` a second, round after
    round."""

    topics: tuple[str, ...]
    size: int
    rate: float
    warm_up_seconds: float
    seconds: float
    rounds: int
    pids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FillJob:
    """Sends ``count`` messages of ``size`` bytes to the topics in turn, as the data for later
    jobs."""

    topics: tuple[str, ...]
    size: int
    count: int
    shape: LoadShape


@dataclass(frozen=True, slots=True)
class ReplayJob:
    """Reads all ``count`` messages of a topic from its beginning, ``rounds`` times.

    Each of several ``readers`` is a group of its own. They begin one after the other, so that they
    are at different positions of the log.
    """

    topic: str
    count: int
    rounds: int
    pids: tuple[int, ...]
    readers: int = 1
    at_once: int = PULL_MESSAGES
    """The messages that one pull requests."""


@dataclass(frozen=True, slots=True)
class ProbeJob:
    """Sends one message after the other until an empty line. For a line with a time, it answers
    when the first message sent after that time was acknowledged.
    """

    topic: str
    size: int


@dataclass(frozen=True, slots=True)
class ConnectionsJob:
    """Keeps ``count`` connections to a broker until the next such job: half are idle, half wait in
    a held pull for a message of the empty topic."""

    address: str
    topic: str
    count: int


@dataclass(frozen=True, slots=True)
class FloorJob:
    """Sends as many bytes as the requests of a :class:`ProduceJob` have, to the relay at
    ``address``."""

    address: str
    size: int
    shape: LoadShape
    warm_up_seconds: float
    seconds: float
    rounds: int
    pids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class HttpJob:
    """Sends single messages as a :class:`ProduceJob` does, to the HTTP port at ``address``."""

    address: str
    topic: str
    size: int
    shape: LoadShape
    warm_up_seconds: float
    seconds: float
    rounds: int
    pids: tuple[int, ...]


Job = ProduceJob | SteadyJob | FillJob | ReplayJob | ProbeJob | ConnectionsJob | FloorJob | HttpJob
_KINDS: tuple[type[Job], ...] = get_args(Job)
_JOBS = {kind.__name__: kind for kind in _KINDS}


def encode_job(job: Job) -> bytes:
    return orjson.dumps(
        {"job": type(job).__name__, **asdict(job)}, option=orjson.OPT_APPEND_NEWLINE
    )


def decode_job(line: bytes) -> Job:
    """The job in a line of :func:`encode_job`."""
    fields: dict[str, Any] = orjson.loads(line)
    kind = _JOBS[fields.pop("job")]
    if "shape" in fields:
        fields["shape"] = LoadShape(**fields["shape"])
    for name in ("pids", "topics"):
        if name in fields:
            fields[name] = tuple(fields[name])
    return kind(**fields)
