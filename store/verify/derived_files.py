"""The check of derived files, after that of the ranges.

Ranges give digests of what the files must hold. Tasks compare each file once with the digests. If a
file differs, the ranges concerned are read again and compared row by row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise

from store.io.filesystem import ReadableFileSystem
from store.verify.files.audit_files import AuditFiles
from store.verify.files.row_files import NO_END, list_starts
from store.verify.findings import Finding, FindingLog
from store.verify.index.consume_queue_check import QueueCheck
from store.verify.index.consume_queue_digests import QueueFindings
from store.verify.index.file_tasks import (
    FileResult,
    FileTask,
    batched_tasks,
    check_files,
    cut_files,
)
from store.verify.index.range_reread import RangeDifferences, RangeReread, reread_range
from store.verify.plan.ranges import GroupPlan, QueueKey, RangeResult, ReplicaRange, WrongRows
from store.verify.plan.task_runner import TaskRunner


@dataclass(slots=True)
class DerivedResults:
    """The results of the ranges of a group, with the differences in derived files added."""

    results: list[RangeResult]
    queues: dict[int, dict[QueueKey, QueueFindings]] = field(default_factory=dict)
    """By place of the replica; ``wrong`` and ``segments`` too."""
    wrong: dict[int, dict[QueueKey, list[WrongRows]]] = field(default_factory=dict)
    segments: dict[int, list[Finding]] = field(default_factory=dict)
    unread: dict[str, Finding] = field(default_factory=dict)

    def parts_of(self, place: int) -> list[ReplicaRange]:
        """The parts of all ranges of a replica, in order."""
        return [part for result in self.results for part in result.parts if part.place == place]


def check_derived(
    fs: ReadableFileSystem,
    run: TaskRunner,
    groups: Sequence[GroupPlan],
    results: Sequence[Sequence[RangeResult]],
) -> list[DerivedResults]:
    """Checks all derived files of all groups. ``results``: those of all ranges of each group."""
    found = [DerivedResults(sorted(some, key=lambda one: one.number)) for some in results]
    places: list[tuple[int, int]] = []
    tasks: list[FileTask] = []
    for number, group in enumerate(groups):
        for place in range(len(group.replicas)):
            for task in _file_tasks(fs, group, place, found[number].results):
                places.append((number, place))
                tasks.append(task)
    checked = run(check_files, [None], [(0, some) for some in batched_tasks(tasks)])
    readings: dict[tuple[int, int, int], RangeReread] = {}
    for (number, place), of_files in zip(places, chain.from_iterable(checked), strict=True):
        _add_file_result(found[number], place, of_files)
        for reading in _rereads(fs, groups[number], place, of_files):
            at = (number, reading.number, place)
            known = readings.get(at, reading)
            both = (known.queues | reading.queues, known.keys or reading.keys)
            readings[at] = RangeReread(reading.number, place, *both)
    again = [(number, readings[number, at, place]) for number, at, place in sorted(readings)]
    differences = run(reread_range, groups, again) if again else []
    for (number, reading), result in zip(again, differences, strict=True):
        _add_differences(found[number], reading, result)
    return found


def _file_tasks(
    fs: ReadableFileSystem, group: GroupPlan, place: int, results: Sequence[RangeResult]
) -> list[FileTask]:
    replica, lean = group.replicas[place], group.for_ranges().replicas[place]
    state = replica.state
    files = AuditFiles(fs, group.listing)
    queues = QueueCheck(files, state, replica.directory, FindingLog(replica.name))
    parts = []
    for result in results:
        for part in result.parts:
            if part.place == place:
                queues.absorb(part.queues, result.number, reported=True)
                parts.append(part)
    has_queues = state.machine is not None or state.checkpoint is None
    expected = (
        each._replace(tail=state.tails.get(each.key))
        for each in (queues.expected() if has_queues else ())
    )
    return list(cut_files(files, lean, group.listing, expected, parts))


def _add_file_result(found: DerivedResults, place: int, result: FileResult) -> None:
    queues = found.queues.setdefault(place, {})
    for key, (shape, behind) in result.queues.items():
        before = queues.get(key, QueueFindings())
        queues[key] = QueueFindings(before.shape + shape, before.behind + behind)
    found.segments.setdefault(place, []).extend(result.segments)
    for finding in result.unread:
        known = found.unread.get(finding.path)
        if known is None or finding.position < known.position:
            found.unread[finding.path] = finding


def _rereads(
    fs: ReadableFileSystem, group: GroupPlan, place: int, result: FileResult
) -> Iterator[RangeReread]:
    """The ranges to read again, for the files that differ from their digests."""
    for key, numbers in result.differing.items():
        for number in numbers:
            yield RangeReread(number, place, frozenset({key}))
    if not result.keys:
        return
    replica, directory = group.replicas[place], group.replicas[place].directory
    starts = list_starts(AuditFiles(fs, group.listing), f"{directory}/keyindex")
    stops = dict(pairwise([*starts, NO_END]))
    for plan in group.ranges:
        border, end = plan.borders[place], group.range_end(plan, place)
        if border is None or plan.last_index is None or plan.last_index > replica.checkpoint_index:
            continue
        end = NO_END if end is None else end
        if any(start < end and border.position < stops.get(start, NO_END) for start in result.keys):
            yield RangeReread(plan.number, place, keys=True)


def _add_differences(
    found: DerivedResults, reading: RangeReread, differences: RangeDifferences
) -> None:
    """Adds the differences to the result of their range."""
    queues = found.wrong.setdefault(reading.place, {})
    for key, rows in differences.queues.items():
        for wrong in rows:
            wrong.add_to(queues.setdefault(key, []))
    at = next(at for at, one in enumerate(found.results) if one.number == reading.number)
    result = found.results[at]
    parts, agreement = list(result.parts), list(result.agreement)
    for number, part in enumerate(parts):
        if part.place == reading.place and differences.missing is not None:
            missing = differences.missing.behind(part.keys.missing)
            parts[number] = replace(part, keys=replace(part.keys, missing=missing))
    if differences.findings and agreement[reading.place] == "same":
        agreement[reading.place] = "damaged"
    findings = (*result.findings, *differences.findings)
    found.results[at] = replace(
        result, findings=findings, agreement=tuple(agreement), parts=tuple(parts)
    )
