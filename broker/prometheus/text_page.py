"""``GET /metrics``: readings in Prometheus' text format, written by its client library."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Mapping
from itertools import accumulate

from prometheus_client import CollectorRegistry, ProcessCollector, exposition
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from broker.prometheus.metric import Kind, Reading
from dledger.histogram import Histogram

CONTENT_TYPE = exposition.CONTENT_TYPE_PLAIN_0_0_4
"""The version of the format that every Prometheus reads. Later versions have the same content."""

PAGE_SECONDS = 1.0
"""The lifetime of a page: requests in that time get the same one."""

SAMPLES_PER_TURN = 200
"""Samples that are written in one turn of the event loop: a few milliseconds of work."""

_HEADER_LINES = 2

CONTENT_TYPE_HEADER = {"Content-Type": CONTENT_TYPE}


class _Only(Collector):
    """A collector of given families."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Family]:
        """See :class:`prometheus_client.registry.Collector`."""
        yield from self._families


class TextPage:
    """The page of one process. Concurrent requests, and those a moment later, get the same page."""

    def __init__(
        self,
        read: Callable[[], AsyncIterable[Reading]],
        labels: Mapping[str, str],
        clock: Callable[[], float],
    ) -> None:
        """``labels`` are added to each sample; ``clock`` gives seconds of a monotonic clock."""
        self._read = read
        self._labels = tuple(labels), tuple(labels.values())
        self._clock = clock
        self._process = ProcessCollector(registry=CollectorRegistry())
        self._page = b""
        self._made_at = float("-inf")
        self._making = asyncio.Lock()

    async def text(self) -> bytes:
        """The page, at most :data:`PAGE_SECONDS` old."""
        async with self._making:
            if self._clock() - self._made_at >= PAGE_SECONDS:
                self._page = await self._make()
                self._made_at = self._clock()
            return self._page

    async def _make(self) -> bytes:
        """Writes the samples in several turns of the event loop."""
        parts = [exposition.generate_latest(_Only(self._process.collect()))]
        async for metric, samples in self._read():
            for start in range(0, len(samples) + 1, SAMPLES_PER_TURN):
                some = Reading(metric, samples[start : start + SAMPLES_PER_TURN])
                text = exposition.generate_latest(_Only([self._family(some)]))
                # Only the first samples have help and type before them.
                parts.append(text.split(b"\n", _HEADER_LINES)[-1] if start else text)
                await asyncio.sleep(0)
        return b"".join(parts)

    def _family(self, reading: Reading) -> Family:
        metric, samples = reading
        names, values = self._labels
        names = (*names, *metric.labels)
        if metric.kind is Kind.HISTOGRAM:
            histograms = HistogramMetricFamily(metric.name, metric.help, labels=names)
            for labels, value in samples:
                assert isinstance(value, Histogram)  # noqa: S101 - as the catalog says
                histograms.add_metric((*values, *labels), _buckets(value), value.sum)
            return histograms
        family: CounterMetricFamily | GaugeMetricFamily
        if metric.kind is Kind.COUNTER:
            family = CounterMetricFamily(metric.name, metric.help, labels=names)
        else:
            family = GaugeMetricFamily(metric.name, metric.help, labels=names)
        for labels, value in samples:
            assert not isinstance(value, Histogram)  # noqa: S101 - likewise
            family.add_metric((*values, *labels), value)
        return family


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """Each upper bound with the number of values up to it."""
    bounds = (*map(floatToGoString, histogram.bounds), "+Inf")
    return list(zip(bounds, accumulate(histogram.counts), strict=True))
