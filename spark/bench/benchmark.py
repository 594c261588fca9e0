"""Measures the audit in Spark, and the same check in plain processes.

The start of a session and its first query do not count. The data are in the page cache if they fit.
Rates are bytes of log of all replicas per second, by the clock and by the CPU time of all processes
including Spark's own. CPU time depends less on other users of the machine.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import product
from statistics import median
from typing import Any

from pyspark.sql import SparkSession

from spark.audit.audit import check_ranges, task_size
from spark.audit.spark_task_runner import SparkRun
from spark.bench.messages import Messages
from spark.bench.process_usage import cpu_seconds, peak_memory
from spark.bench.snapshot_data import write_snapshots
from spark.bench.without_spark import check_cost, check_plain, plain_workers, read_cost, row_cost
from spark.errors import ReplicaError
from spark.session import open_session
from store.io.os_filesystem import OsFileSystem
from store.verify import GroupPlan, RangeResult, plan_audit
from store.verify.derived_files import check_derived

WORKERS = 2
NARROW = "topic,queue_id,queue_offset"
SHUFFLE = ("Shuffle Write Metrics", "Shuffle Bytes Written")


def run_benchmark(
    sizes_gib: Sequence[float],
    body_size: int,
    range_bytes: int | None,
    directory: str | None,
    *,
    repeats: int = 3,
    linked: bool = False,
) -> dict[str, Any]:
    """A row for each size of uniform and of mixed messages, and the marginal rates of each kind.

    The data of a row are deleted before the next one.
    """
    rows: dict[Messages, list[dict[str, Any]]] = {messages: [] for messages in Messages}
    with (
        tempfile.TemporaryDirectory(prefix="dledger-events-") as events,
        open_session(f"local[{WORKERS}]", settings=log_events(events)) as session,
    ):
        session.range(0, WORKERS, 1, WORKERS).mapInArrow(
            lambda batches: batches, "id bigint"
        ).collect()
        for messages, gib in product(Messages, sizes_gib):
            with tempfile.TemporaryDirectory(dir=directory, prefix="dledger-bench-") as place:
                size = int(gib * (1 << 30))
                replicas = write_snapshots(place, size, body_size, messages=messages, linked=linked)
                fs = OsFileSystem()
                size = range_bytes or task_size(session, fs, replicas)
                group = plan_audit(fs, replicas, size).groups[0]
                before = shuffled(events)
                row = {"messages": str(messages), "gib": gib}
                row |= measure(session, replicas[0], group, repeats)
                row |= measure_alone(group, repeats)
            rows[messages].append({**row, "shuffle_bytes": shuffled(events) - before})
    found: dict[str, Any] = {"body_size": body_size, "sizes": [], "marginal": {}}
    for messages, of_kind in rows.items():
        found["marginal"][str(messages)] = compare_sizes(of_kind)
        found["sizes"] += of_kind
    return found


def log_events(directory: str) -> dict[str, str]:
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{directory}",
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
    }


def shuffled(events: str) -> int:
    """Bytes that tasks have shuffled since the session began."""
    total = 0
    for name in os.listdir(events):
        with open(f"{events}/{name}", encoding="utf-8") as file:
            for line in file:
                if '"SparkListenerTaskEnd"' in line:
                    metrics = json.loads(line).get("Task Metrics", {})
                    total += metrics.get(SHUFFLE[0], {}).get(SHUFFLE[1], 0)
    return total


def measure(session: SparkSession, root: str, group: GroupPlan, repeats: int) -> dict[str, Any]:
    """Runs plain processes and Spark by turns. The best run of each counts."""
    plain, spark = [], []
    with plain_workers(WORKERS) as pool:
        check_plain(pool, group)  # fills the page cache
        for _ in range(repeats):
            plain.append(timed(lambda: check_plain(pool, group)))
            spark.append(timed(lambda: check_in_spark(session, root, group)))
    sizes = {size for _, _, size in (*plain, *spark)}
    if len(sizes) > 1:
        raise ReplicaError("Spark and plain processes read different amounts")
    size = sizes.pop()
    row: dict[str, Any] = {"ranges": len(group.ranges), "bytes": size}
    for name, runs in (("plain", plain), ("spark", spark)):
        row[f"{name}_seconds"] = min(seconds for seconds, _, _ in runs)
        row[f"{name}_cpu_seconds"] = min(cpu for _, cpu, _ in runs)
    row["worker_peak_bytes"] = peak_memory("pyspark.daemon")
    return row


def measure_alone(group: GroupPlan, repeats: int) -> dict[str, float]:
    """The CPU time of one process: the median of alternating runs.

    ``check_to_read`` is the rate of the check divided by that of reading with a CRC32C.
    """
    directory = group.replicas[0].directory
    runs: dict[str, list[float]] = {}
    with plain_workers(1) as pool:
        for _ in range(repeats):
            read = pool.submit(read_cost, group).result()
            check = pool.submit(check_cost, group).result()
            rates = [cost.amount / cost.cpu_seconds / 1e9 for cost in (read, check)]
            runs.setdefault("read_gb_per_cpu_second", []).append(rates[0])
            runs.setdefault("check_gb_per_cpu_second", []).append(rates[1])
            runs.setdefault("check_to_read", []).append(rates[1] / rates[0])
            for name, columns in (("row", ""), ("narrow_row", NARROW)):
                cost = pool.submit(row_cost, directory, columns).result()
                runs.setdefault(f"{name}_microseconds", []).append(
                    cost.cpu_seconds / cost.amount * 1e6
                )
    return {name: round(median(found), 3) for name, found in runs.items()}


def check_in_spark(session: SparkSession, root: str, group: GroupPlan) -> list[RangeResult]:
    """Checks all ranges of a group, and its derived files."""
    run = SparkRun(session, root)
    results = [result for result, _ in check_ranges(run, [group])[0]]
    (derived,) = check_derived(OsFileSystem(), run, [group], [results])
    return derived.results


def timed(run: Callable[[], Sequence[RangeResult]]) -> tuple[float, float, int]:
    """Seconds by the clock and of CPU time, and the bytes that were read."""
    began, used = time.perf_counter(), cpu_seconds()
    results = run()
    seconds, cpu = time.perf_counter() - began, cpu_seconds() - used
    return seconds, cpu, sum(result.bytes_read for result in results)


def compare_sizes(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Adds rates to each row. Returns the marginal rates from the first to the last size, which
    leave out the constant cost of a job."""
    first, last = rows[0], rows[-1]
    found: dict[str, Any] = {}
    for row in rows:
        for name in ("plain", "spark"):
            for unit in ("second", "cpu_second"):
                row[f"{name}_gb_per_{unit}"] = rate(row["bytes"], row[f"{name}_{unit}s"])
        row["spark_to_plain"] = rate(row["plain_seconds"], row["spark_seconds"], 1)
        row["cpu_per_gib_to_first"] = rate(
            row["spark_cpu_seconds"] / row["bytes"], first["spark_cpu_seconds"] / first["bytes"], 1
        )
        row["shuffle_share"] = row["shuffle_bytes"] / row["bytes"]
    if len(rows) > 1:
        size = last["bytes"] - first["bytes"]
        for name in ("plain", "spark"):
            for unit in ("second", "cpu_second"):
                took = last[f"{name}_{unit}s"] - first[f"{name}_{unit}s"]
                found[f"marginal_{name}_gb_per_{unit}"] = rate(size, took)
        found["marginal_spark_to_plain"] = rate(
            found["marginal_spark_gb_per_second"], found["marginal_plain_gb_per_second"], 1
        )
    return found


def rate(amount: float, per: float, unit: float = 1e9) -> float:
    return round(amount / per / unit, 3) if per > 0 else 0.0
