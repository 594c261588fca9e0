"""Helpers for tests that damage a replica and check it."""

from __future__ import annotations

from simulator.engine.disk import SimulatedFileSystem
from store.verify import Finding, FindingKind, verify_replica, verify_replicas
from tests.store.sample_replica import SEGMENT_SIZE

DIRECTORY = "/data/broker-a/n0"


MARK = 37


def place(position: int) -> tuple[str, int]:
    start = position - position % SEGMENT_SIZE
    return f"{DIRECTORY}/commitlog/{start:020d}", position - start


def check(fs: SimulatedFileSystem) -> list[Finding]:
    """The findings. They must not depend on how the log is cut into ranges."""
    whole = verify_replica(fs, DIRECTORY).findings
    assert verify_replicas(fs, [DIRECTORY], range_bytes=1500).findings == whole
    return whole


def only(fs: SimulatedFileSystem) -> Finding:
    findings = check(fs)
    assert len(findings) == 1, findings
    return findings[0]


def where(finding: Finding) -> tuple[FindingKind, str, int, int | None, int | None]:
    return (
        finding.kind,
        finding.path,
        finding.position,
        finding.index_first,
        finding.index_last,
    )
