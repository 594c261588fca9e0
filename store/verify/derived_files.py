"""The check of derived files, between that of the ranges and the end.

Ranges digest what the files must hold. Tasks compare files with the digests, each file once. Where
one differs, the ranges concerned are read again, by the replica concerned, row by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise

from store.io.filesystem import ReadableFileSystem
from store.verify.files.audit_files import AuditFiles
from store.verify.files.read_buffers import Buffers
from store.verify.findings import Finding, FindingKind, FindingLog
from store.verify.index.consume_queue_digests import QueueFindings
from store.verify.index.file_tasks import FileResult, FileTask, check_files, cut_files, together
from store.verify.index.index_checks import open_queue_check
from store.verify.index.key_index_digests import list_starts
from store.verify.plan.ranges import (
    Compared,
    GroupPlan,
    QueueSpan,
    RangeKeys,
    RangeResult,
    ReplicaRange,
    WrongRows,
)
from store.verify.plan.task_runner import TaskRunner
from store.verify.replica_check import ReplicaCheck

_NO_END = 1 << 62
DERIVED = frozenset({FindingKind.CONSUME_QUEUE, FindingKind.KEY_INDEX})


@dataclass(frozen=True, slots=True)
class RangeReread:
    """A range that one replica reads again, for files that differ from it."""

    number: int
    place: int
    compared: Compared


@dataclass(frozen=True, slots=True)
class DerivedDifferences:
    """What that gave: rows of queues, keys that no file has, and findings."""

    queues: dict[tuple[str, int], tuple[WrongRows, ...]]
    keys: RangeKeys | None
    findings: tuple[Finding, ...]


@dataclass(slots=True)
class DerivedResults:
    """The results of the ranges of a group with what differs, and findings of files as files."""

    results: list[RangeResult]
    queues: dict[int, dict[tuple[str, int], QueueFindings]] = field(default_factory=dict)
    """By the replica's place in the group."""
    segments: dict[int, list[Finding]] = field(default_factory=dict)
    unread: dict[str, Finding] = field(default_factory=dict)


def check_derived(
    fs: ReadableFileSystem,
    run: TaskRunner,
    groups: Sequence[GroupPlan],
    results: Sequence[Sequence[RangeResult]],
) -> list[DerivedResults]:
    """All derived files of all groups; ``results`` has those of all ranges of each."""
    found = [DerivedResults(sorted(some, key=lambda one: one.number)) for some in results]
    places: list[tuple[int, int]] = []
    tasks: list[FileTask] = []
    for number, group in enumerate(groups):
        for place in range(len(group.replicas)):
            for task in _file_tasks(fs, group, place, found[number].results):
                places.append((number, place))
                tasks.append(task)
    readings: dict[tuple[int, int, int], Compared] = {}
    checked = run(check_files, [None], [(0, some) for some in together(tasks)])
    for (number, place), of_files in zip(places, chain.from_iterable(checked), strict=True):
        _gather(found[number], place, of_files)
        for at, compared in _to_read(fs, groups[number], place, of_files):
            known = readings.get((number, at, place), Compared())
            both = Compared(known.queues | compared.queues, known.keys or compared.keys)
            readings[number, at, place] = both
    again = [
        (number, RangeReread(at, place, compared))
        for (number, at, place), compared in sorted(readings.items())
    ]
    differences = run(read_again, groups, again) if again else []
    for (number, reading), result in zip(again, differences, strict=True):
        some = found[number].results
        at = next(at for at, one in enumerate(some) if one.number == reading.number)
        some[at] = _with_differences(some[at], reading, result)
    return found


def _file_tasks(
    fs: ReadableFileSystem, group: GroupPlan, place: int, results: Sequence[RangeResult]
) -> list[FileTask]:
    replica, lean = group.replicas[place], group.for_ranges().replicas[place]
    state = replica.state
    files = AuditFiles(fs, group.listing)
    if state is None:
        return []
    queues = open_queue_check(files, state, replica.directory, FindingLog(replica.name))
    parts = []
    for result in results:
        for part in result.parts:
            if part.place == place:
                queues.absorb(part.queues, result.number, told=True)
                parts.append(part)
    has_queues = state.machine is not None or state.checkpoint is None
    expected = (
        each._replace(tail=state.tails.get((each.topic, each.queue_id)))
        for each in (queues.expected() if has_queues else ())
    )
    return list(cut_files(files, lean, group.listing, expected, parts))


def _gather(found: DerivedResults, place: int, result: FileResult) -> None:
    queues = found.queues.setdefault(place, {})
    for key, (shape, behind) in result.queues.items():
        before = queues.get(key, QueueFindings())
        queues[key] = QueueFindings(before.shape + shape, before.behind + behind)
    found.segments.setdefault(place, []).extend(result.segments)
    for finding in result.unread:
        known = found.unread.get(finding.path)
        if known is None or finding.position < known.position:
            found.unread[finding.path] = finding


def _to_read(
    fs: ReadableFileSystem, group: GroupPlan, place: int, result: FileResult
) -> list[tuple[int, Compared]]:
    """Ranges by number, each with the files that differ from it."""
    found = [
        (number, Compared(frozenset({key})))
        for key, numbers in result.differing.items()
        for number in numbers
    ]
    if not result.keys:
        return found
    replica, directory = group.replicas[place], group.replicas[place].directory
    starts = list_starts(AuditFiles(fs, group.listing), f"{directory}/keyindex", _NO_END)
    stops = dict(pairwise([*starts, _NO_END]))
    for plan in group.ranges:
        border, end = plan.borders[place], group.range_end(plan, place)
        if border is None or plan.last_index is None or plan.last_index > replica.checkpoint_index:
            continue
        end = _NO_END if end is None else end
        if any(
            start < end and border.position < stops.get(start, _NO_END) for start in result.keys
        ):
            found.append((plan.number, Compared(keys=True)))
    return found


def read_again(
    fs: ReadableFileSystem, group: GroupPlan, reading: RangeReread, _buffers: Buffers
) -> DerivedDifferences:
    """Compares derived files with a range of their replica's log, row by row."""
    replica, plan = group.replicas[reading.place], group.ranges[reading.number]
    border = plan.borders[reading.place]
    if border is None:
        return DerivedDifferences({}, None, ())
    files = AuditFiles(fs, group.listing)
    check = ReplicaCheck(
        files,
        replica,
        border,
        last_index=plan.last_index,
        end_position=group.range_end(plan, reading.place),
        compared=reading.compared,
    )
    check.run()
    report, queues, keys, _state = check.end()
    unread = files.findings({replica.directory: replica.name})
    return DerivedDifferences(
        {(span.topic, span.queue_id): span.wrong for span in queues.spans if span.wrong},
        keys if reading.compared.keys else None,
        tuple(
            finding
            for finding in (*report.findings, *unread)
            if finding.kind in DERIVED
            and (finding.kind is not FindingKind.KEY_INDEX or reading.compared.keys)
        ),
    )


def _with_differences(
    result: RangeResult, reading: RangeReread, found: DerivedDifferences
) -> RangeResult:
    """What the range would have given had it read the files itself."""

    def with_wrong(span: QueueSpan) -> QueueSpan:
        return replace(span, wrong=found.queues.get((span.topic, span.queue_id), ()))

    def with_all(part: ReplicaRange) -> ReplicaRange:
        if part.place != reading.place:
            return part
        spans = tuple(map(with_wrong, part.queues.spans))
        queues = replace(part.queues, spans=spans)
        return replace(part, queues=queues, keys=found.keys or part.keys)

    agreement = list(result.agreement)
    if found.findings and agreement[reading.place] == "same":
        agreement[reading.place] = "damaged"
    return replace(
        result,
        findings=(*result.findings, *found.findings),
        agreement=tuple(agreement),
        parts=tuple(map(with_all, result.parts)),
    )
