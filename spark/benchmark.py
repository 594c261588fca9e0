"""How fast the audit is: in Spark, and by plain processes with the same checks and no Spark.

The time of a session's start and of its first query does not count; the data are in the page cache
as far as they fit. Rates are bytes of log of all replicas in a second.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from spark.audit import buffers_of_worker, check_ranges
from spark.benchdata import write_snapshots
from spark.errors import ReplicaError
from store.osfiles import OsFileSystem
from store.verify import GroupPlan, RangeResult, check_range, plan_audit

WORKERS = 2


def run_benchmark(
    session: SparkSession,
    sizes_gib: Sequence[float],
    body_size: int,
    range_bytes: int,
    directory: str | None,
) -> list[dict[str, Any]]:
    """A row for each size. The data are deleted after each."""
    rows = []
    session.range(0, WORKERS, 1, WORKERS).mapInArrow(lambda batches: batches, "id bigint").collect()
    for gib in sizes_gib:
        with tempfile.TemporaryDirectory(dir=directory, prefix="dledger-bench-") as place:
            replicas = write_snapshots(place, int(gib * (1 << 30)), body_size)
            rows.append({"gib": gib, **measure(session, replicas, range_bytes)})
    return rows


def measure(session: SparkSession, replicas: list[str], range_bytes: int) -> dict[str, Any]:
    """Plain processes and Spark in turn, the better of two runs of each."""
    group = plan_audit(OsFileSystem(), replicas, range_bytes).groups[0]
    plain, spark, size = [], [], 0
    for _ in range(2):
        began = time.perf_counter()
        size = total(check_plain(group))
        plain.append(time.perf_counter() - began)
        began = time.perf_counter()
        results, _seconds = check_ranges(session, replicas[0], group)
        spark.append(time.perf_counter() - began)
        if total(results) != size:
            raise ReplicaError("Spark and plain processes read different amounts")
    return {
        "ranges": len(group.ranges),
        "bytes": size,
        "plain_seconds": round(min(plain), 3),
        "spark_seconds": round(min(spark), 3),
        "plain_gb_per_second": round(size / min(plain) / 1e9, 3),
        "spark_gb_per_second": round(size / min(spark) / 1e9, 3),
        "spark_to_plain": round(min(plain) / min(spark), 3),
    }


def check_plain(group: GroupPlan) -> list[RangeResult]:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(WORKERS, mp_context=context) as pool:
        return list(pool.map(partial(check_one, group), range(len(group.ranges))))


def check_one(group: GroupPlan, number: int) -> RangeResult:
    return check_range(OsFileSystem(), group, number, buffers_of_worker())


def total(results: Sequence[RangeResult]) -> int:
    return sum(result.bytes_read for result in results)
