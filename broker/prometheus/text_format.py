"""Readings in Prometheus' text format, written by its client library.

Only :mod:`broker.prometheus.text_page` imports this module, with the first request for a page.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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

from broker.prometheus.metric import Kind, Labels, Reading
from dledger.histogram import Histogram


class _Only(Collector):
    """A collector of given families."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Family]:
        """See :class:`prometheus_client.registry.Collector`."""
        yield from self._families


class TextFormat:
    """Writes the samples of one process."""

    def __init__(self, names: Labels, values: Labels) -> None:
        """These labels are added to each sample."""
        self._names = names
        self._values = values
        self._process = ProcessCollector(registry=CollectorRegistry())

    def process(self) -> bytes:
        """The client library's own metrics of this process."""
        return exposition.generate_latest(_Only(self._process.collect()))

    def text(self, reading: Reading) -> bytes:
        """Help and type of a metric, a line each, and its samples."""
        return exposition.generate_latest(_Only([self._family(reading)]))

    def _family(self, reading: Reading) -> Family:
        metric, samples = reading
        names, values = (*self._names, *metric.labels), self._values
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
