"""The check of one range over all replicas of a group."""

from __future__ import annotations

from store.filesystem import FileSystem
from store.verify.compare import compare_replicas
from store.verify.findings import UNKNOWN_REPLICA, Finding, FindingKind
from store.verify.ranges import (
    GroupPlan,
    RangeKeys,
    RangePlan,
    RangeQueues,
    RangeResult,
    ReplicaRange,
)
from store.verify.replica import ReplicaCheck, ReplicaReport


def check_range(fs: FileSystem, group: GroupPlan, number: int) -> RangeResult:
    """Checks range ``number`` of a group: every replica's part of it, and that they are equal.

    Needs no other range, so ranges may be checked in any order and in many processes.
    """
    return examine_range(fs, group, group.ranges[number])


def examine_range(fs: FileSystem, group: GroupPlan, plan: RangePlan) -> RangeResult:
    """The check entry by entry, replica by replica: slow, and tells what is wrong."""
    reports: dict[int, ReplicaReport] = {}
    parts: list[ReplicaRange] = []
    counts: dict[tuple[str, int], int] = {}
    entries = messages = bytes_read = 0
    for place in plan.members:
        border = plan.borders[place]
        if border is None:
            continue
        end_position = range_end(group, plan, place)
        check = ReplicaCheck(fs, group.replicas[place], border, plan.last_index, end_position)
        report, queues, keys = check.run()
        reports[place] = report
        parts.append(part_of(place, report, queues, keys))
        bytes_read += report.end_position - border.position
        entries = max(entries, report.last_index + 1 - report.first_index)
        if report.messages > messages:
            messages, counts = report.messages, check.counts
    findings = [finding for report in reports.values() for finding in report.findings]
    diverged = [reports[place] for place in sorted(plan.diverged) if place in reports]
    if plan.last_index is not None:
        findings += compare_replicas(fs, list(reports.values()), diverged)
    return RangeResult(
        plan.number,
        plan.first_index,
        max((part.last_index for part in parts), default=plan.first_index - 1),
        tuple(findings),
        entries,
        messages,
        bytes_read,
        tuple(_agreement(reports.get(place), findings) for place in range(len(group.replicas))),
        tuple(parts),
        counts,
    )


def range_end(group: GroupPlan, plan: RangePlan, place: int) -> int | None:
    """Where the replica's next range begins; ``None`` behind its last."""
    for other in group.ranges[plan.number + 1 :]:
        border = other.borders[place]
        if border is not None:
            return border.position
    return None


def part_of(
    place: int, report: ReplicaReport, queues: RangeQueues, keys: RangeKeys
) -> ReplicaRange:
    return ReplicaRange(
        place,
        report.last_index,
        report.last_term,
        report.end_position,
        report.messages,
        queues,
        keys,
    )


def _agreement(report: ReplicaReport | None, findings: list[Finding]) -> str:
    if report is None:
        return "behind"
    if any(
        finding.kind is FindingKind.DIVERGENCE and finding.replica in (report.name, UNKNOWN_REPLICA)
        for finding in findings
    ):
        return "differs"
    return "damaged" if report.findings else "same"
