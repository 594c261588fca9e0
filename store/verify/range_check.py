"""The check of one range over all replicas of a group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from store.errors import StoreError
from store.io.filesystem import ReadableFileSystem
from store.verify.files.audit_files import AuditFiles
from store.verify.files.read_buffers import Buffers
from store.verify.findings import UNKNOWN_REPLICA, Finding
from store.verify.plan.message_counts import MessageCounts
from store.verify.plan.ranges import (
    GroupPlan,
    RangePlan,
    RangeResult,
    ReplicaRange,
)
from store.verify.replica_check import ReplicaCheck
from store.verify.replica_comparison import compare_replicas
from store.verify.replica_report import ReplicaReport

Outcome = tuple[ReplicaReport, ReplicaRange]


def check_range(
    fs: ReadableFileSystem, group: GroupPlan, number: int, buffers: Buffers | None = None
) -> RangeResult:
    """Checks range ``number`` of a group: the part of each replica, and that they are equal.

    If all replicas have the same bytes, only one is decoded: equal bytes have equal CRCs. Otherwise
    each is checked alone, and then they are compared entry by entry. The same ``buffers`` can serve
    many ranges, one after the other.
    """
    plan = group.ranges[number]
    files = AuditFiles(fs, group.listing)
    buffers = buffers or Buffers()
    result = _check_alike(files, group, plan, buffers)
    if result is None:
        result = _check_each(files, group, plan, buffers)
    unread = files.findings({replica.directory: replica.name for replica in group.replicas})
    if not unread:
        return result
    damaged = {finding.replica for finding in unread}
    return replace(
        result,
        findings=(*result.findings, *unread),
        agreement=tuple(
            "damaged" if word == "same" and replica.name in damaged else word
            for word, replica in zip(result.agreement, group.replicas, strict=True)
        ),
    )


def _check_each(
    files: AuditFiles, group: GroupPlan, plan: RangePlan, buffers: Buffers
) -> RangeResult:
    """Checks each replica alone, and then compares them entry by entry."""
    checks = _checks(files, group, plan, buffers)
    outcomes = {}
    for place, check in checks.items():
        check.run()
        outcomes[place] = check.end(place)
    reports = {place: outcome[0] for place, outcome in outcomes.items()}
    divergences: list[Finding] = []
    if plan.last_index is not None:
        diverged = [reports[place] for place in sorted(plan.diverged) if place in reports]
        contradicting = [reports[place] for place in group.contradicting if place in reports]
        divergences = compare_replicas(files, list(reports.values()), diverged, contradicting)
    fullest = max(reports, key=lambda place: reports[place].messages)
    return _result(group, plan, outcomes, checks[fullest].counts, divergences)


def _check_alike(
    files: AuditFiles, group: GroupPlan, plan: RangePlan, buffers: Buffers
) -> RangeResult | None:
    """Checks all together. ``None`` if a log is damaged or differs."""
    borders = [border for border in plan.borders if border is not None]
    if plan.last_index is None or plan.diverged or any(border != borders[0] for border in borders):
        return None
    checks = _checks(files, group, plan, buffers)
    first, *others = checks.values()
    try:
        first.run_shared(others, plan.last_index)
        outcomes = {place: check.end(place) for place, check in checks.items()}
    except (StoreError, OSError):
        return None  # the check of each replica alone says why
    return _result(group, plan, outcomes, first.counts, [])


def _checks(
    files: AuditFiles, group: GroupPlan, plan: RangePlan, buffers: Buffers
) -> dict[int, ReplicaCheck]:
    return {
        place: ReplicaCheck(
            files,
            group.replicas[place],
            border,
            directories=group.directories,
            last_index=plan.last_index,
            end_position=group.range_end(plan, place),
            buffers=buffers,
        )
        for place, border in enumerate(plan.borders)
        if border is not None
    }


def _result(
    group: GroupPlan,
    plan: RangePlan,
    outcomes: Mapping[int, Outcome],
    counts: MessageCounts,
    divergences: Sequence[Finding],
) -> RangeResult:
    reports, parts = zip(*outcomes.values(), strict=True)
    last_index = max(report.last_index for report in reports)
    begins = {place: border.position for place, border in enumerate(plan.borders) if border}
    queues = parts[0].queues
    return RangeResult(
        plan.number,
        plan.first_index,
        last_index,
        (*(finding for report in reports for finding in report.findings), *divergences),
        last_index + 1 - plan.first_index,
        max(report.messages for report in reports),
        sum(outcomes[place][0].end_position - begin for place, begin in begins.items()),
        tuple(
            _agreement(outcomes[place][0], divergences) if place in outcomes else "behind"
            for place in range(len(group.replicas))
        ),
        # Equal queues are pickled once.
        tuple(replace(part, queues=queues) if part.queues == queues else part for part in parts),
        counts,
    )


def _agreement(report: ReplicaReport, divergences: Sequence[Finding]) -> str:
    for finding in divergences:
        sided = bool(finding.majority) and not f"{finding.path}/".startswith(f"{report.directory}/")
        if finding.replica == report.name or (finding.replica == UNKNOWN_REPLICA and not sided):
            return "differs"
    return "damaged" if report.findings else "same"
