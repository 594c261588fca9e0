"""Reads a page of metrics with the parser of Prometheus' own client library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from broker.prometheus.catalog import NODE_LABELS

Labels = frozenset[tuple[str, str]]


@dataclass(frozen=True)
class Page:
    """Samples by name and labels, and the kind of each metric."""

    samples: Mapping[tuple[str, Labels], float]
    kinds: Mapping[str, str]

    @classmethod
    def parse(cls, text: str) -> Page:
        samples: dict[tuple[str, Labels], float] = {}
        kinds: dict[str, str] = {}
        for family in text_string_to_metric_families(text):
            suffix = "_total" if family.type == "counter" else ""
            assert family.name + suffix not in kinds, f"{family.name} stands there twice"
            kinds[family.name + suffix] = family.type
            for sample in family.samples:
                key = sample.name, frozenset(sample.labels.items())
                assert key not in samples, f"{key} stands there twice"
                samples[key] = sample.value
        return cls(samples, kinds)

    def __getitem__(self, name: str) -> float:
        """The value of a metric without labels of its own."""
        return self.value(name)

    def value(self, name: str, **labels: str) -> float:
        """The value of the one sample with these labels. It may have others."""
        (found,) = self.values(name, **labels).values()
        return found

    def values(self, name: str, **labels: str) -> dict[Labels, float]:
        """The values of a metric by labels, without the labels that each sample has."""
        wanted = labels.items()
        return {
            frozenset(pair for pair in found if pair[0] not in NODE_LABELS): value
            for (of, found), value in self.samples.items()
            if of == name and wanted <= set(found)
        }

    def sum(self, name: str, **labels: str) -> float:
        """The sum over all samples with these labels."""
        return sum(self.values(name, **labels).values())
