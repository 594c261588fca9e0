"""Metrics and their readings, independent of the client library."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import NamedTuple, TypeAlias

from dledger.histogram import Histogram

OTHER = "(other)"
"""The label of series beyond a limit (:class:`~broker.limits.MetricLimits`). No topic, group or
node has that name."""

Labels: TypeAlias = tuple[str, ...]
"""Label values, in the order of the metric's labels."""


class Kind(Enum):
    """The kinds by their names in Prometheus' text format."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


class Metric(NamedTuple):
    """One metric of the catalog. The name of a counter ends with ``_total``."""

    name: str
    kind: Kind
    help: str
    labels: Labels = ()


class Reading(NamedTuple):
    """The samples of one metric at one moment: label values, and a number or a histogram."""

    metric: Metric
    samples: Sequence[tuple[Labels, float | Histogram]]


Readings: TypeAlias = Callable[[], Iterable[Reading]]
"""Reads present values; takes little time."""


def single(metric: Metric, value: float | Histogram) -> Reading:
    """A reading of a metric without labels."""
    return Reading(metric, (((), value),))


def bounded(
    samples: Iterable[tuple[Labels, float]], series_max: int, other: Labels
) -> list[tuple[Labels, float]]:
    """The first ``series_max`` samples; the others are summed in one sample with the labels
    ``other``."""
    kept: list[tuple[Labels, float]] = []
    others = 0.0
    beyond = False
    for sample in samples:
        if len(kept) < series_max:
            kept.append(sample)
        else:
            beyond = True
            others += sample[1]
    return [*kept, (other, others)] if beyond else kept
