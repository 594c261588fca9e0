"""The check of stored data: stopped replicas and snapshots, each alone and against each other.

Every entry is read and every CRC recomputed, with everything that is derived from the log made
again and compared. Files are only read. What a crash may leave behind is no finding: derived files
may lag the log, a torn tail may follow what is known to be durable, replicas may lag each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from store.errors import DamagedError, DataLockedError
from store.filesystem import FileSystem
from store.verify.compare import compare_replicas
from store.verify.findings import RESTORE, Finding, FindingKind, FindingLog
from store.verify.replica import ReplicaCheck, ReplicaReport
from store.verify.state import read_identity

__all__ = [
    "Finding",
    "FindingKind",
    "ReplicaReport",
    "Verification",
    "verify_replica",
    "verify_replicas",
]


@dataclass(frozen=True, slots=True)
class Verification:
    """What the check of several replicas found, and what it covered."""

    replicas: list[ReplicaReport]
    divergences: list[Finding]

    @property
    def findings(self) -> list[Finding]:
        """All of them, replica by replica, and then what differs between replicas."""
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


def verify_replica(
    fs: FileSystem, directory: str, progress: Callable[[int], None] = lambda _size: None
) -> ReplicaReport:
    """Checks one replica; ``progress`` is told the bytes of log that were read.

    Raises :class:`~store.errors.DataLockedError` where a process has the data open, and
    :class:`~store.errors.DataFormatError` where the directory is no replica of a format that this
    program knows.
    """
    with ExitStack() as locks:
        _lock(fs, directory, locks)
        return _check(fs, directory, progress)


def verify_replicas(
    fs: FileSystem,
    directories: Sequence[str],
    progress: Callable[[int], None] = lambda _size: None,
) -> Verification:
    """Checks each replica, then compares those of the same group. Raises as :func:`verify_replica`.

    All of them stay locked until the end.
    """
    directories = list(dict.fromkeys(directory.rstrip("/") for directory in directories))
    with ExitStack() as locks:
        for directory in directories:
            _lock(fs, directory, locks)
        reports = [_check(fs, directory, progress) for directory in directories]
        groups: dict[tuple[str, int], list[ReplicaReport]] = {}
        for report in reports:
            groups.setdefault((report.group, report.segment_size), []).append(report)
        divergences = [
            finding for members in groups.values() for finding in compare_replicas(fs, members)
        ]
        return Verification(reports, divergences)


def log_size(fs: FileSystem, directory: str) -> int:
    """Bytes of the files of a replica's log, for showing progress."""
    path = f"{directory}/commitlog"
    size = 0
    for name in fs.list_directory(path) if fs.exists(path) else []:
        file = fs.open(f"{path}/{name}", writable=False)
        try:
            size += file.size()
        finally:
            file.close()
    return size


def _lock(fs: FileSystem, directory: str, locks: ExitStack) -> None:
    """Keeps a node from starting meanwhile. A snapshot has no lock file, and gets none."""
    path = f"{directory}/lock"
    if not fs.exists(path):
        return
    try:
        locks.callback(fs.lock(path).release)
    except BlockingIOError as error:
        raise DataLockedError(
            f"{directory}: a running node has this data open; stop it, or check a snapshot"
        ) from error


def _check(fs: FileSystem, directory: str, progress: Callable[[int], None]) -> ReplicaReport:
    try:
        identity = read_identity(fs, directory)
    except DamagedError as error:
        report = ReplicaReport(directory, "", "")
        log = FindingLog(directory)
        log.add(
            FindingKind.FORMAT,
            error.path,
            error.position,
            expected="the format file of a replica",
            found=error.what,
            advice=f"nothing else of this replica was checked; {RESTORE}",
        )
        report.findings = log.findings
        return report
    return ReplicaCheck(fs, directory, identity, progress).run()
