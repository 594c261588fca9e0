"""The audit as Spark jobs: one task checks one range of the log over all replicas of a group.

The first job plans all groups, the second checks their ranges, the third their derived files. Tasks
read the replicas themselves, and return a summary of a range. No row of the log passes through
Spark, and nothing is shuffled. ``dledger verify`` runs the same check (:mod:`store.verify`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial

from pyspark.sql import SparkSession

from spark.audit.spark_task_runner import SparkRun
from spark.audit.task_size import REQUESTS_AT_ONCE, count_cores, log_bytes, range_bytes_for
from spark.errors import ReplicaError
from spark.remote_file_system import open_one_file_system
from store.errors import StoreError
from store.io.filesystem import FileSystem, ReadableFileSystem
from store.verify import (
    Buffers,
    Finding,
    GroupPlan,
    RangeResult,
    check_range,
    finish_audit,
    plan_audit,
)
from store.verify.derived_files import check_derived
from store.verify.plan.message_counts import MessageCounts
from store.verify.plan.replica_identities import distinct_directories
from store.verify.plan.replica_locks import lock_replicas, without_unlocked

RANGES_AT_ONCE = 4096
"""The ranges of all groups that are audited at the same time. The result of a range has about 50
bytes for each queue with messages, up to 512 KiB for the effects of its commands on the broker's
state, and 1,024 numbers of messages or two for each topic."""
COUNTS_MAX = 1 << 16
"""Pace: the numbers of messages, by topic and time, that are held for the report."""


@dataclass(frozen=True, slots=True)
class GroupFinding:
    """A finding of a group."""

    finding: Finding
    group: str
    listed: bool = False
    """Whether the finding is about a message of the list."""

    @property
    def kind(self) -> str:
        """The kind of the finding, or ``acknowledged``."""
        return "acknowledged" if self.listed else self.finding.kind.value

    def __str__(self) -> str:
        return self.finding.line(self.kind)


@dataclass(slots=True)
class GroupAudit:
    """The result of the audit of one group. ``seconds``: by range, the time of its task.

    The results have no ``parts``, because only the findings needed them, and no ``counts``.
    """

    plan: GroupPlan
    results: list[RangeResult]
    seconds: dict[int, float]


@dataclass(slots=True)
class Audit:
    """The whole result. ``scan_seconds`` is the time of the Spark jobs.

    ``unfinished``: why checks that were asked for beside the audit could not be made. ``counts``:
    messages of all groups.
    """

    groups: list[GroupAudit] = field(default_factory=list)
    findings: list[GroupFinding] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    scan_seconds: float = 0.0
    counts: MessageCounts = field(default_factory=partial(MessageCounts, COUNTS_MAX))

    @property
    def bytes_read(self) -> int:
        return sum(result.bytes_read for group in self.groups for result in group.results)


def run_audit(
    session: SparkSession, directories: Sequence[str], range_bytes: int | None = None
) -> Audit:
    """Audits the replicas in ``directories``: paths, or URLs of one file system.

    A task checks about ``range_bytes`` bytes of each replica's log. The default depends on the size
    of the log and the number of cores. Raises :class:`~spark.errors.ReplicaError` for a directory
    that is no replica, for one in use, and for directories of several file systems.
    """
    fs, paths = open_one_file_system(directories)
    audit = Audit()
    run = SparkRun(session, directories[0])
    paths, findings = distinct_directories(fs, paths)
    with ExitStack() as locks:
        try:
            unlocked = lock_replicas(fs, paths, locks)
            size = range_bytes or task_size(session, fs, paths)
            plan = plan_audit(fs, paths, size, run)
            for groups in waves(plan.groups):
                audit_groups(fs, run, groups, audit)
        except (StoreError, OSError) as error:
            raise ReplicaError(str(error)) from error
        for finding in [*findings, *unlocked, *without_unlocked(plan.findings, unlocked)]:
            name = finding.replica.partition("/")[0]
            audit.findings.append(GroupFinding(finding, name))
    return audit


def task_size(session: SparkSession, fs: FileSystem, paths: Sequence[str]) -> int:
    """The default for the bytes of log in a task."""
    return range_bytes_for(log_bytes(fs, paths), count_cores(session))


def waves(groups: Sequence[GroupPlan]) -> Iterator[list[GroupPlan]]:
    """Batches of groups to audit at the same time: enough for any cluster, not too many for a
    driver."""
    some: list[GroupPlan] = []
    ranges = 0
    for group in groups:
        if some and ranges + len(group.ranges) > RANGES_AT_ONCE:
            yield some
            some, ranges = [], 0
        some.append(group)
        ranges += len(group.ranges)
    if some:
        yield some


def audit_groups(fs: FileSystem, run: SparkRun, groups: Sequence[GroupPlan], audit: Audit) -> None:
    """Audits some groups, and adds the results to ``audit``."""
    began = time.perf_counter()
    checked = check_ranges(run, groups)
    results = [[result for result, _ in some] for some in checked]
    derived = check_derived(fs, run, groups, results)
    audit.scan_seconds += time.perf_counter() - began
    with ThreadPoolExecutor(REQUESTS_AT_ONCE) as pool:
        findings = list(pool.map(partial(finish_audit, fs), groups, results, derived))
    for group, some, files, found in zip(groups, checked, derived, findings, strict=True):
        seconds = {result.number: taken for result, taken in some}
        # Only the findings needed the parts, and they are complete.
        kept = [replace(result, parts=(), counts=MessageCounts()) for result in files.results]
        for result in files.results:
            audit.counts.merge(result.counts)
        audit.groups.append(GroupAudit(group, kept, seconds))
        audit.findings += [GroupFinding(finding, group.group) for finding in found]


def check_ranges(
    run: SparkRun, groups: Sequence[GroupPlan]
) -> list[list[tuple[RangeResult, float]]]:
    """All ranges of each group, with the seconds of their tasks: one job for all groups."""
    lean = [group.for_ranges() for group in groups]
    tasks = [(of, plan.number) for of, group in enumerate(groups) for plan in group.ranges]
    found: list[list[tuple[RangeResult, float]]] = [[] for _ in groups]
    for (of, _), result in zip(tasks, run.on_executors(timed_range, lean, tasks), strict=True):
        found[of].append(result)
    return found


def timed_range(
    fs: ReadableFileSystem, group: GroupPlan, number: int, buffers: Buffers
) -> tuple[RangeResult, float]:
    """Checks a range. Returns the result, and the seconds that it took."""
    began = time.perf_counter()
    result = check_range(fs, group, number, buffers)
    return result, time.perf_counter() - began
