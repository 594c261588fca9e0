"""What goes in and out by topic and by group: counted on the leader, told to tools (315).

A meter is added to once for each run of messages in an entry, each pull and each message sent back,
never for a single message of a batch. It keeps sums of ten seconds, ten minutes and an hour, and
only those in which something came, so a topic that rests costs nothing. Statistics are no part of
the replicated state: they begin anew with the process, and with a new leader.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from broker.limits import CLIENTS
from store.io.filesystem import Bytes
from store.message.batch import QUEUE_ROW

SAMPLE_SECONDS = 10
"""How often what was counted is put away (:meth:`TopicMetrics.sample` is called as often)."""


class Span(NamedTuple):
    """A window of time and the buckets that it is made of."""

    unit_seconds: int
    units: int


MINUTE = Span(10, 6)
HOUR = Span(600, 6)
DAY = Span(3_600, 24)
SPANS = (MINUTE, HOUR, DAY)

_FIELDS = 4

_unpack, _ROW_SIZE = QUEUE_ROW.unpack_from, QUEUE_ROW.size

K = TypeVar("K")


class WindowSums(NamedTuple):
    """Of one window: how much, in how many steps, in what time."""

    messages: int = 0
    bytes: int = 0
    steps: int = 0
    seconds: float = 0.0


class Meter:
    """One topic, or one group of a topic."""

    __slots__ = ("bytes", "messages", "sampled_at", "spans", "steps")

    def __init__(self, now: float) -> None:
        self.messages = 0
        self.bytes = 0
        self.steps = 0
        self.sampled_at = now
        """When there was last something to put away."""
        self.spans = tuple(array("q") for _ in SPANS)
        """Of each span the buckets in which something came, the oldest first: number of the
        bucket, messages, bytes, steps. There may be thousands of meters: no objects for each."""

    def add(self, messages: int, size: int) -> None:
        """Counts one step."""
        self.messages += messages
        self.bytes += size
        self.steps += 1

    def sample(self, now: float, passed: float) -> None:
        """Puts away what was counted since the last time, ``passed`` seconds since the start."""
        if not self.steps:
            return
        self.sampled_at = now
        counted = (self.messages, self.bytes, self.steps)
        for span, buckets in zip(SPANS, self.spans, strict=True):
            # What is put away was counted before: half a step back is surely among it.
            number = int((passed - SAMPLE_SECONDS / 2) // span.unit_seconds)
            if buckets and buckets[-_FIELDS] == number:
                for field, value in enumerate(counted, 1 - _FIELDS):
                    buckets[field] += value
            else:
                buckets.extend((number, *counted))
                del buckets[: -span.units * _FIELDS]
        self.messages = self.bytes = self.steps = 0

    def sums(self, span: Span, passed: float) -> WindowSums:
        """The last units of a span, the one that has begun among them."""
        first = int(passed // span.unit_seconds) - span.units + 1
        messages, size, steps = self.messages, self.bytes, self.steps
        buckets = self.spans[SPANS.index(span)]
        for start in range(0, len(buckets), _FIELDS):
            if buckets[start] >= first:
                messages += buckets[start + 1]
                size += buckets[start + 2]
                steps += buckets[start + 3]
        return WindowSums(messages, size, steps, passed - max(first, 0) * span.unit_seconds)


class TopicMetrics:
    """The meters of one process. ``time`` is that of the event loop, in seconds."""

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._began = time()
        self.put: dict[str, Meter] = {}
        """By topic."""
        self.got: dict[tuple[str, str], Meter] = {}
        """By topic and group."""
        self.sent_back: dict[tuple[str, str], Meter] = {}
        """By topic and group."""

    def stored(self, topic: str, rows: Bytes) -> None:
        """A run of messages was committed; ``rows`` are those of its ConsumeQueue."""
        meter = self.put.get(topic)
        if meter is None:
            meter = self.put[topic] = Meter(self._time())
        # The records of a run lie one behind the other: two rows tell the bytes of all.
        row_bytes = len(rows)
        first, _, _ = _unpack(rows)
        last, size, _ = _unpack(rows, row_bytes - _ROW_SIZE)
        meter.messages += row_bytes // _ROW_SIZE
        meter.bytes += last + size - first
        meter.steps += 1

    def pulled(self, topic: str, group: str, messages: int, size: int) -> None:
        """A pull brought messages."""
        self._of(self.got, topic, group).add(messages, size)

    def returned(self, topic: str, group: str, size: int) -> None:
        """A message of the topic was sent back by the group."""
        self._of(self.sent_back, topic, group).add(1, size)

    def passed(self) -> float:
        """Seconds since the process began to count."""
        return self._time() - self._began

    def rate(self, topic: str, group: str) -> float:
        """Messages a second that the group got of the topic in the last minute."""
        meter = self.got.get((topic, group))
        if meter is None:
            return 0.0
        sums = meter.sums(MINUTE, self.passed())
        return sums.messages / sums.seconds if sums.seconds > 0 else 0.0

    def sample(self) -> None:
        """Every ``SAMPLE_SECONDS``. What had nothing for longer than a day is forgotten."""
        now, passed = self._time(), self.passed()
        old = now - (DAY.units + 1) * DAY.unit_seconds
        self.put = _sampled(self.put, now, passed, old)
        self.got = _sampled(self.got, now, passed, old)
        self.sent_back = _sampled(self.sent_back, now, passed, old)

    def _of(self, meters: dict[tuple[str, str], Meter], topic: str, group: str) -> Meter:
        meter = meters.get((topic, group))
        if meter is None:
            meter = Meter(self._time())
            if len(meters) < CLIENTS.topic_metrics_max:
                meters[topic, group] = meter
        return meter


def _sampled(meters: dict[K, Meter], now: float, passed: float, old: float) -> dict[K, Meter]:
    for meter in meters.values():
        meter.sample(now, passed)
    if all(meter.sampled_at >= old for meter in meters.values()):
        return meters
    return {key: meter for key, meter in meters.items() if meter.sampled_at >= old}
