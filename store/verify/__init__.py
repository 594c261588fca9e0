"""The check of stopped replicas and snapshots: each alone, and against each other.

``dledger verify`` and the audit in Spark both run it. It reads every entry, computes every CRC, and
compares all derived files with the log. It shares the reader and the layouts with the product, but
not the code that builds a file. It derives everything by code of its own, so it also finds mistakes
of a builder. It writes nothing.

What a crash leaves is no finding: derived files may lag behind the log, a torn tail may follow the
durable part, and replicas may lag behind each other.

1. *Plan* (:mod:`store.verify.plan.audit_plan`): read the small files, cut the log into ranges.
2. *Ranges* (:mod:`store.verify.range_check`): read the log of all replicas once.
3. *Derived files* (:mod:`store.verify.derived_files`): compare files with digests of the ranges.
4. *Group* (:mod:`store.verify.group_findings`): check what spans ranges.

The *place* of a replica is its number among the replicas of its group, from 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass

from store.io.filesystem import FileSystem, ReadableFileSystem
from store.verify.files.audit_files import AuditFiles
from store.verify.files.read_buffers import Buffers
from store.verify.findings import Finding, FindingKind
from store.verify.group_findings import finish_audit
from store.verify.plan.audit_plan import RANGE_BYTES, plan_audit
from store.verify.plan.ranges import AuditPlan, GroupPlan, RangeResult
from store.verify.plan.replica_identities import distinct_directories
from store.verify.plan.replica_locks import lock_replicas, without_unlocked
from store.verify.range_check import check_range
from store.verify.replay.state_check import compare_states
from store.verify.replica_report import ReplicaReport

__all__ = [
    "AuditPlan",
    "Buffers",
    "Finding",
    "FindingKind",
    "GroupPlan",
    "RangeResult",
    "ReplicaReport",
    "Verification",
    "check_range",
    "finish_audit",
    "plan_audit",
    "verify_replica",
    "verify_replicas",
]


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of the check of several replicas."""

    replicas: list[ReplicaReport]
    divergences: list[Finding]

    @property
    def findings(self) -> list[Finding]:
        """All findings: replica by replica, then differences between replicas."""
        return [
            *(finding for report in self.replicas for finding in report.findings),
            *self.divergences,
        ]

    def to_json(self) -> dict[str, object]:
        return {
            "consistent": not self.findings,
            "replicas": [report.to_json() for report in self.replicas],
            "findings": [finding.to_json() for finding in self.findings],
        }


def verify_replica(fs: FileSystem, directory: str) -> ReplicaReport:
    """Checks one replica.

    Raises :class:`~store.errors.DataLockedError` if a process has the data open, and
    :class:`~store.errors.DataFormatError` if the directory is no replica of a known format.
    """
    return verify_replicas(fs, [directory]).replicas[0]


def verify_replicas(
    fs: FileSystem,
    directories: Sequence[str],
    progress: Callable[[int], None] = lambda _size: None,
    range_bytes: int = RANGE_BYTES,
) -> Verification:
    """Checks each replica, and compares those of the same group. Raises as :func:`verify_replica`.

    All are locked until the end. ``progress`` gets the bytes of log that were read. A range has
    about ``range_bytes`` bytes of log.
    """
    directories, findings = distinct_directories(fs, directories)
    with ExitStack() as locks:
        unlocked = lock_replicas(fs, directories, locks)
        findings += unlocked
        plan = plan_audit(fs, directories, range_bytes)
        reports = {directory: ReplicaReport(directory, "", "") for directory in directories}
        findings += without_unlocked(plan.findings, unlocked)
        for group in plan.groups:
            states = compare_states(group)
            results = []
            buffers = Buffers()
            for number in range(len(group.ranges)):
                results.append(check_range(fs, group, number, buffers))
                progress(results[-1].bytes_read)
            findings += finish_audit(fs, group, results)
            for place, replica in enumerate(group.replicas):
                reports[replica.directory] = _report(place, group, results)
                reports[replica.directory].state = states[place]
        divergences = []
        for finding in findings:
            if finding.kind is FindingKind.DIVERGENCE:
                divergences.append(finding)
            else:
                directory = next(one for one in directories if finding.path.startswith(f"{one}/"))
                reports[directory].findings.append(finding)
        return Verification(list(reports.values()), divergences)


def _report(place: int, group: GroupPlan, results: Sequence[RangeResult]) -> ReplicaReport:
    replica = group.replicas[place]
    parts = [part for result in results for part in result.parts if part.place == place]
    return ReplicaReport(
        replica.directory,
        replica.identity.group,
        replica.identity.node,
        group.segment_size,
        replica.first_index,
        max((part.last_index for part in parts), default=replica.first_index - 1),
        replica.known_index,
        max((part.end_position for part in parts), default=0),
        max((part.last_term for part in parts), default=0),
        sum(part.messages for part in parts),
    )


def log_size(fs: ReadableFileSystem, directory: str) -> int:
    """Bytes of the files of a replica's log, to show progress."""
    files = AuditFiles(fs)
    path = f"{directory}/commitlog"
    size = 0
    for name in files.list_directory(path) if files.exists(path) else []:
        with closing(files.open(f"{path}/{name}", writable=False)) as file:
            size += file.size()
    return size
