"""Writes ``docs/metrics.md``: ``python -m tests.broker.prometheus.metrics_page``."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from broker.limits import METRICS as LIMITS
from broker.prometheus import catalog
from broker.prometheus.metric import OTHER, Metric
from broker.prometheus.text_page import PAGE_SECONDS
from dledger.histogram import LATENCY_SECONDS

PAGE = "docs/metrics.md"


_BEGINNING = """\
# Metrics

`GET /metrics` tells them in Prometheus' text format: on the HTTP port of each node, and of a
NameServer with `dledger namesrv --http-port N`. [operations.md](operations.md) says what to look at
and what each alert means. `python -m tests.broker.prometheus.metrics_page` writes this page.

Each sample has the labels {labels}. `node_id` is the broker name,
as with RocketMQ, and `node` the member of the group. A NameServer has `node_type` alone. Names that
begin with `rocketmq_` are RocketMQ's own, and mean the same.

A label has a bounded number of values. The rest is one series, whose labels are `{other}`:

| Series | At most |
| --- | --- |
| topics | {limits.topics_max:,} |
| groups with dead letters | {limits.topics_max:,} |
| pairs of a topic and a group | {limits.topic_groups_max:,} |
| lags of queues | {limits.lag_queues_max:,} |
| groups with connections | {limits.connected_groups_max:,} |

A topic keeps its series until it has had no message for a day. Counters begin at 0 with the
process. Messages are counted where a node leads, so sum over the nodes. A page is at most
{page_seconds:g} s old.

Latencies are histograms in seconds, with the bounds {bounds}.
"""


def reference() -> str:
    """The whole page."""
    beginning = _BEGINNING.format(
        labels=_words(catalog.NODE_LABELS),
        other=OTHER,
        limits=LIMITS,
        page_seconds=PAGE_SECONDS,
        bounds=", ".join(f"{bound:g}" for bound in LATENCY_SECONDS),
    )
    process = _words(catalog.PROCESS)
    return "\n".join(
        [
            beginning,
            "## A node",
            "",
            *_table(catalog.ON_BROKER),
            "",
            "## A NameServer",
            "",
            *_table(catalog.ON_NAMESERVER),
            "",
            "## Each process",
            "",
            "As Prometheus' client libraries tell of any process, without labels:",
            f"{process}.",
            "",
        ]
    )


def _table(chosen: Collection[Metric]) -> list[str]:
    return [
        "| Name | Kind | Labels | Meaning |",
        "| --- | --- | --- | --- |",
        *(
            f"| `{each.name}` | {each.kind.value} | {_words(each.labels)} | {each.help} |"
            for each in catalog.METRICS
            if each in chosen
        ),
    ]


def _words(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    Path(PAGE).write_text(reference(), "utf-8")
