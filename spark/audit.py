"""The audit as a Spark job: one task checks one range of the log over all replicas of a group.

Tasks read the replicas themselves and give back a summary of a few hundred bytes a range; no row
of the log ever goes through Spark, and nothing is shuffled. The check is the one of
``dledger verify`` (:mod:`store.verify`), so both find the same.
"""

from __future__ import annotations

import gc
import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from spark.errors import ReplicaError
from spark.filesystems import open_file_system
from spark.tasksize import count_cores, log_bytes, range_bytes_for
from store.errors import StoreError
from store.filesystem import FileSystem
from store.verify import (
    Buffers,
    Finding,
    GroupPlan,
    RangeResult,
    check_range,
    finish_audit,
    plan_audit,
)
from store.verify.identities import distinct_directories
from store.verify.locking import lock_replicas

RESULT_SCHEMA = "number bigint, seconds double, result binary"


@dataclass(frozen=True, slots=True)
class Told:
    """A finding of a group."""

    finding: Finding
    group: str
    listed: bool = False
    """Whether it is about a message of the list of those that were acknowledged."""

    @property
    def kind(self) -> str:
        """That of the finding, or ``acknowledged``."""
        return "acknowledged" if self.listed else self.finding.kind.value

    def __str__(self) -> str:
        return self.finding.line(self.kind)


@dataclass(slots=True)
class GroupAudit:
    """What the audit of one group gave; ``seconds`` of each range are those of its task."""

    plan: GroupPlan
    results: list[RangeResult]
    seconds: dict[int, float]


@dataclass(slots=True)
class Audit:
    """The whole result. ``scan_seconds`` is the time of the Spark jobs alone."""

    groups: list[GroupAudit] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)
    scan_seconds: float = 0.0

    @property
    def bytes_read(self) -> int:
        return sum(result.bytes_read for group in self.groups for result in group.results)


def run_audit(
    session: SparkSession, directories: Sequence[str], range_bytes: int | None = None
) -> Audit:
    """Audits the replicas in ``directories``: paths, or URLs of one file system.

    A task checks about ``range_bytes`` of each replica's log; where that is left out, the size
    follows from that of the log and the number of cores.
    Raises :class:`~spark.errors.ReplicaError` for what is no replica, or one that is in use.
    """
    root = directories[0]
    opened = [open_file_system(directory) for directory in directories]
    fs, paths = opened[0][0], [path for _, path in opened]
    if len({type(each) for each, _ in opened}) > 1:
        raise ReplicaError("the replicas lie on different kinds of file systems: copy them to one")
    audit = Audit()
    paths, findings = distinct_directories(fs, paths)
    with ExitStack() as locks:
        try:
            findings += lock_replicas(fs, paths, locks)
            plan = plan_audit(fs, paths, range_bytes or task_size(session, fs, paths))
            for group in plan.groups:
                began = time.perf_counter()
                results, seconds = check_ranges(session, root, group)
                audit.scan_seconds += time.perf_counter() - began
                audit.groups.append(GroupAudit(group, results, seconds))
                found = finish_audit(fs, group, results)
                audit.told += [Told(finding, group.group) for finding in found]
        except (StoreError, OSError) as error:
            raise ReplicaError(str(error)) from error
        for finding in [*findings, *plan.findings]:
            name = finding.replica.partition("/")[0]
            audit.told.append(Told(finding, name))
    return audit


def task_size(session: SparkSession, fs: FileSystem, paths: Sequence[str]) -> int:
    """Bytes of log in a task, where nobody says."""
    return range_bytes_for(log_bytes(fs, paths), count_cores(session))


def check_ranges(
    session: SparkSession, root: str, group: GroupPlan
) -> tuple[list[RangeResult], dict[int, float]]:
    """All ranges of a group, one task each."""
    count = len(group.ranges)
    if count == 0:
        return [], {}
    rows = range_frame(session, root, group).collect()
    results = [pickle.loads(row["result"]) for row in rows]
    return results, {row["number"]: row["seconds"] for row in rows}


def range_frame(session: SparkSession, root: str, group: GroupPlan) -> DataFrame:
    """A row for each range, of a task each: nothing in it makes Spark exchange rows."""
    count = len(group.ranges)
    return session.range(0, count, 1, count).mapInArrow(range_task(root, group), RESULT_SCHEMA)


def range_task(
    root: str, group: GroupPlan
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a task runs; it goes to the executors together with the plan of the group."""

    def check(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if not gc.get_freeze_count():
            # Spark collects garbage after each task: what is loaded by now need not be looked at.
            gc.freeze()
        fs, _ = open_file_system(root)
        buffers = buffers_of_worker()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                began = time.perf_counter()
                result = check_range(fs, group, number, buffers)
                seconds = time.perf_counter() - began
                yield pa.RecordBatch.from_pydict(
                    {
                        "number": pa.array([number], pa.int64()),
                        "seconds": pa.array([seconds], pa.float64()),
                        "result": pa.array([pickle.dumps(result)], pa.binary()),
                    }
                )

    return check


@cache
def buffers_of_worker() -> Buffers:
    """A worker runs many tasks, one at a time."""
    return Buffers()
