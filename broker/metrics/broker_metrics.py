"""Counters of one process since its start, and their rates, for runtime info and ``/status``."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from broker.metrics.topic_metrics import SAMPLE_SECONDS, TopicMetrics
from dledger.periodic import Periodic
from store.message.batch import QUEUE_ROW, Batch

SPANS = (1, 6, 60)
"""The numbers of samples over which rates are averaged: RocketMQ's 10, 60 and 600 seconds."""

DAY_MS = 86_400_000


@dataclass(slots=True)
class BrokerMetrics:
    """Counts of messages, unless the name says pulls. ``boot_ms`` is the start time of the process.

    As in RocketMQ, a scheduled message counts when it is stored to wait, and again when it is
    delivered.
    """

    boot_ms: int
    put_messages: int = 0
    get_messages: int = 0
    pulls_found: int = 0
    pulls_missed: int = 0


class Sample(NamedTuple):
    """The counters at one moment."""

    at: float
    put_messages: int = 0
    get_messages: int = 0
    pulls_found: int = 0
    pulls_missed: int = 0

    @property
    def pulls(self) -> int:
        return self.pulls_found + self.pulls_missed


class DayStartCounts(NamedTuple):
    """The counts at the beginning of a day (UTC)."""

    put_messages: int = 0
    get_messages: int = 0


class MessageRates:
    """Counts messages in and out, for all ports, and samples the counters every ten seconds.

    ``wall_clock`` gives milliseconds since 1970.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, stats: BrokerMetrics, wall_clock: Callable[[], int]
    ) -> None:
        self._loop = loop
        self._stats = stats
        self._wall_clock = wall_clock
        self._samples = deque([self._sample()], maxlen=SPANS[-1] + 1)
        self._day = wall_clock() // DAY_MS
        self._samplings = Periodic(loop, SAMPLE_SECONDS, self._tick)
        self.topic_metrics = TopicMetrics(loop.time)
        self._got = self.topic_metrics.got
        self.today = DayStartCounts()
        self.yesterday = DayStartCounts()

    def start(self) -> None:
        self._samplings.start()

    def stop(self) -> None:
        self._samplings.stop()

    def stored(self, batch: Batch) -> None:
        """Counts the messages of a committed entry."""
        self._stats.put_messages += len(batch.rows) // QUEUE_ROW.size
        self.topic_metrics.stored(batch)

    def pulled(self, topic: str, group: str, messages: int, size: int) -> None:
        """Counts an answered pull, with or without messages."""
        stats = self._stats
        if not messages:
            stats.pulls_missed += 1
            return
        stats.get_messages += messages
        stats.pulls_found += 1
        meter = self._got.get((topic, group))
        if meter is None:
            meter = self._got.of((topic, group))
        # Inlined Meter.add, because each pull of a single message comes here.
        meter.messages += messages
        meter.bytes += size
        meter.steps += 1

    def tps(self, count: Callable[[Sample], int]) -> str:
        """The rates per second over the spans, separated by spaces; over fewer samples if there are
        not enough."""
        now = self._sample()
        parts = []
        for span in SPANS:
            before = self._samples[-min(span, len(self._samples))]
            seconds = now.at - before.at
            rate = (count(now) - count(before)) / seconds if seconds > 0 else 0.0
            parts.append(f"{rate:.2f}")
        return " ".join(parts)

    def _tick(self) -> None:
        self._samples.append(self._sample())
        self.topic_metrics.sample()
        day = self._wall_clock() // DAY_MS
        if day != self._day:
            self._day = day
            self.yesterday = self.today
            self.today = DayStartCounts(self._stats.put_messages, self._stats.get_messages)

    def _sample(self) -> Sample:
        stats = self._stats
        return Sample(
            self._loop.time(),
            stats.put_messages,
            stats.get_messages,
            stats.pulls_found,
            stats.pulls_missed,
        )
