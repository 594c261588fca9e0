"""Counters of messages in and out by topic and by group, on the leader, for tools (315).

A meter counts once for each run of messages in an entry, each pull and each message sent back, not
for each message of a batch. It has sums of ten seconds, ten minutes and an hour. Empty ones are not
kept, so an idle topic costs nothing. The counters are not part of the replicated state: they start
again with the process and with a new leader.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple, TypeVar

from broker.limits import CLIENTS, METRICS
from broker.topics_and_groups import DLQ_PREFIX
from store.io.filesystem import Bytes
from store.message.batch import QUEUE_ROW, Batch, QueueRunHeader

SAMPLE_SECONDS = 10
"""The seconds between two calls of :meth:`TopicMetrics.sample`."""


class Span(NamedTuple):
    """A window of time: the length and the number of its buckets."""

    unit_seconds: int
    units: int


MINUTE = Span(10, 6)
HOUR = Span(600, 6)
DAY = Span(3_600, 24)
SPANS = (MINUTE, HOUR, DAY)

_FIELDS = 4

_unpack, _ROW_SIZE = QUEUE_ROW.unpack_from, QUEUE_ROW.size
_TOPIC = itemgetter(QueueRunHeader._fields.index("topic"))
_ROW_COUNT = itemgetter(QueueRunHeader._fields.index("row_count"))

K = TypeVar("K", bound=Hashable)


class WindowSums(NamedTuple):
    """The sums of one window: messages, bytes, steps and seconds."""

    messages: int = 0
    bytes: int = 0
    steps: int = 0
    seconds: float = 0.0


class Totals(NamedTuple):
    """The totals of a meter since it was made."""

    messages: int
    bytes: int


class Meter:
    """The meter of one topic, or of one group in a topic."""

    __slots__ = (
        *("bytes", "messages", "steps"),
        *("has_series", "past_bytes", "past_messages"),
        *("sampled_at", "spans"),
    )

    def __init__(self, now: float, *, has_series: bool = False) -> None:
        self.messages = 0
        self.bytes = 0
        self.steps = 0
        self.past_messages = 0
        self.past_bytes = 0
        """The totals up to the last sample; the counts above are reset at a sample."""
        self.has_series = has_series
        """Whether it has its own series in metrics; see :class:`Meters`."""
        self.sampled_at = now
        """The time of the last sample with counts."""
        self.spans = tuple(array("q") for _ in SPANS)
        """For each span the buckets with counts, oldest first: number of the bucket, messages,
        bytes, steps. They are arrays, because there may be thousands of meters."""

    def add(self, messages: int, size: int) -> None:
        """Counts one step."""
        self.messages += messages
        self.bytes += size
        self.steps += 1

    def sample(self, now: float, passed: float) -> None:
        """Adds the counts since the last sample to the buckets; ``passed`` is in seconds since the
        start."""
        if not self.steps:
            return
        self.sampled_at = now
        counted = (self.messages, self.bytes, self.steps)
        for span, buckets in zip(SPANS, self.spans, strict=True):
            # The counts are from before: half a step back is surely in their bucket.
            number = int((passed - SAMPLE_SECONDS / 2) // span.unit_seconds)
            if buckets and buckets[-_FIELDS] == number:
                for field, value in enumerate(counted, 1 - _FIELDS):
                    buckets[field] += value
            else:
                buckets.extend((number, *counted))
                del buckets[: -span.units * _FIELDS]
        self.past_messages += self.messages
        self.past_bytes += self.bytes
        self.messages = self.bytes = self.steps = 0

    @property
    def totals(self) -> Totals:
        """All counts since the meter was made."""
        return Totals(self.past_messages + self.messages, self.past_bytes + self.bytes)

    def sums(self, span: Span, passed: float) -> WindowSums:
        """The sums of the last buckets of a span, with the present one."""
        first = int(passed // span.unit_seconds) - span.units + 1
        messages, size, steps = self.messages, self.bytes, self.steps
        buckets = self.spans[SPANS.index(span)]
        for start in range(0, len(buckets), _FIELDS):
            if buckets[start] >= first:
                messages += buckets[start + 1]
                size += buckets[start + 2]
                steps += buckets[start + 3]
        return WindowSums(messages, size, steps, passed - max(first, 0) * span.unit_seconds)


class Meters(dict[K, Meter]):
    """The meters of one kind, by key.

    The first ``series_max`` keys have their own series in ``/metrics``. All others share one series
    for ever: a key that moved to its own series would make both jump.
    """

    def __init__(self, time: Callable[[], float], series_max: int, meters_max: int) -> None:
        """At most ``meters_max`` meters are made."""
        super().__init__()
        self._time = time
        self._series_left = series_max
        self._meters_max = meters_max
        self._others = Meter(time())
        """The meter for keys without their own, and for dropped meters."""

    def of(self, key: K) -> Meter:
        """The meter of ``key``; for a key beyond the limit, the meter of all others."""
        meter = self.get(key)
        if meter is not None:
            return meter
        if len(self) >= self._meters_max:
            return self._others
        meter = self[key] = Meter(self._time(), has_series=self._series_left > 0)
        self._series_left -= meter.has_series
        return meter

    def sample(self, now: float, passed: float) -> None:
        """See :meth:`Meter.sample`. Meters without counts for more than a day are dropped."""
        old = now - (DAY.units + 1) * DAY.unit_seconds
        for meter in (self._others, *self.values()):
            meter.sample(now, passed)
        for key in [key for key, meter in self.items() if meter.sampled_at < old]:
            meter = self.pop(key)
            self._series_left += meter.has_series
            if not meter.has_series:
                self._others.past_messages += meter.past_messages
                self._others.past_bytes += meter.past_bytes

    def series(self) -> tuple[dict[K, Totals], Totals]:
        """The totals of each key with a series, and those of all others together."""
        others = [self._others, *(meter for meter in self.values() if not meter.has_series)]
        totals = [meter.totals for meter in others]
        return (
            {key: meter.totals for key, meter in self.items() if meter.has_series},
            Totals(sum(each.messages for each in totals), sum(each.bytes for each in totals)),
        )


class TopicMetrics:
    """The meters of one process. ``time`` is that of the event loop, in seconds."""

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._began = time()
        topics, pairs = METRICS.topics_max, METRICS.topic_groups_max
        self.put: Meters[str] = Meters(time, topics, CLIENTS.topic_metrics_max)
        """By topic."""
        self.dead: Meters[str] = Meters(time, topics, CLIENTS.topic_metrics_max)
        """Dead letters, by group. They count in ``put`` too; there, their topics may come after
        those that have the series."""
        self.got: Meters[tuple[str, str]] = Meters(time, pairs, CLIENTS.topic_metrics_max)
        """By topic and group."""
        self.sent_back: Meters[tuple[str, str]] = Meters(time, pairs, CLIENTS.topic_metrics_max)
        """By topic and group."""

    def stored(self, batch: Batch) -> None:
        """The messages of an entry were committed. Each run is a step."""
        at = 0
        for topic, grouped in groupby(batch.runs, _TOPIC):
            runs = list(grouped)
            messages = sum(map(_ROW_COUNT, runs))
            self._stored(topic, batch.rows[at : at + messages * _ROW_SIZE], messages, len(runs))
            at += messages * _ROW_SIZE

    def _stored(self, topic: str, rows: Bytes, messages: int, steps: int) -> None:
        meter = self.put.get(topic)
        if meter is None:
            meter = self.put.of(topic)
        # The records of an entry are consecutive: two rows give the bytes of all.
        first, _, _ = _unpack(rows)
        last, size, _ = _unpack(rows, len(rows) - _ROW_SIZE)
        size += last - first
        meter.messages += messages
        meter.bytes += size
        meter.steps += steps
        if topic.startswith(DLQ_PREFIX):
            self.dead.of(topic.removeprefix(DLQ_PREFIX)).add(messages, size)

    def returned(self, topic: str, group: str, size: int) -> None:
        """Counts a message of the topic that the group sent back."""
        self.sent_back.of((topic, group)).add(1, size)

    def passed(self) -> float:
        """The seconds since the start of counting."""
        return self._time() - self._began

    def rate(self, topic: str, group: str) -> float:
        """The messages per second that the group got from the topic in the last minute."""
        meter = self.got.get((topic, group))
        if meter is None:
            return 0.0
        sums = meter.sums(MINUTE, self.passed())
        return sums.messages / sums.seconds if sums.seconds > 0 else 0.0

    def sample(self) -> None:
        """Samples all meters. Called every ``SAMPLE_SECONDS``."""
        now, passed = self._time(), self.passed()
        self.put.sample(now, passed)
        self.dead.sample(now, passed)
        self.got.sample(now, passed)
        self.sent_back.sample(now, passed)
