"""The data of the charts: the samples of all nodes in the last hours, merged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from broker.console.visits.visit import Visit
from broker.limits import CONSOLE
from broker.metrics.history import STEP_SECONDS, HistorySample

HOURS = (1, 3, 6)
FIELDS = HistorySample._fields


async def charts(visit: Visit) -> dict[str, list[float | None]]:
    """By name, of equal length and in the order of time: ``time`` (s since 1970), ``stored`` and
    ``delivered`` (messages a second), ``bytes`` (a second), ``commit`` (ms, the mean of the slowest
    node), ``lag`` (messages). None where no node has a sample."""
    asked = visit.query.get("hours", "")
    hours = int(asked) if asked in map(str, HOURS) else HOURS[0]
    now_ms = visit.context.wall_clock()
    since_ms = now_ms - hours * 3_600_000
    nodes = (await visit.view.nodes())["nodes"]
    told = await visit.view.of_nodes(f"/history?since={since_ms}", nodes)
    step = max(hours * 3600 // CONSOLE.chart_points_max, STEP_SECONDS)
    return merged(told, step, since_ms, now_ms)


def merged(
    histories: Iterable[Mapping[str, Any]], step: int, since_ms: int, now_ms: int
) -> dict[str, list[float | None]]:
    """One row for each ``step`` seconds with samples, between the two times. Samples of other nodes
    are checked."""
    buckets: dict[int, dict[str, Any]] = {}
    for history in histories:
        group = str(history.get("group"))
        for sample in _samples(history):
            time_ms, stored, delivered, log_bytes, commit_us, lag = sample
            if not since_ms <= time_ms <= now_ms:
                continue
            bucket = buckets.setdefault(
                time_ms // (1000 * step),
                {"stored": 0, "delivered": 0, "bytes": 0, "commit": None, "lag": {}},
            )
            bucket["stored"] += stored
            bucket["delivered"] += delivered
            bucket["bytes"] += log_bytes
            if commit_us >= 0:
                bucket["commit"] = max(bucket["commit"] or 0, commit_us / 1000)
            if lag >= 0:
                bucket["lag"][group] = lag
    # The last step is not complete.
    places = [place for place in sorted(buckets) if (place + 1) * step * 1000 <= now_ms]
    rows = [buckets[place] for place in places]
    return {
        "time": [float(place * step) for place in places],
        "stored": [row["stored"] / step for row in rows],
        "delivered": [row["delivered"] / step for row in rows],
        "bytes": [row["bytes"] / step for row in rows],
        "commit": [row["commit"] for row in rows],
        "lag": [sum(row["lag"].values()) if row["lag"] else None for row in rows],
    }


def _samples(history: Mapping[str, Any]) -> list[list[int]]:
    samples = history.get("samples")
    if tuple(history.get("fields") or ()) != FIELDS or not isinstance(samples, list):
        return []
    return [
        each
        for each in samples
        if isinstance(each, list)
        and len(each) == len(FIELDS)
        and all(type(value) is int for value in each)
    ]
