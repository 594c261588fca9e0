"""Tasks that compare derived files with the digests of the ranges.

A task has a bounded number of files, and reads each once. It only names files that differ:
:mod:`store.verify.index.range_reread` finds the wrong rows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from store.index.block_seals import ROW_SIZE
from store.index.queue_tails import TAILS_NAME
from store.io.filesystem import ReadableFileSystem
from store.log.layout import segment_name
from store.verify.files.audit_files import AuditFiles
from store.verify.files.directory_listing import Listing
from store.verify.files.read_buffers import Buffers
from store.verify.files.row_files import list_starts
from store.verify.findings import Finding, FindingLog
from store.verify.index.block_seal_check import check_seals, check_tail
from store.verify.index.consume_queue_digests import ExpectedQueue, QueueFindings, row_crcs
from store.verify.index.consume_queue_files import QueueFiles
from store.verify.index.key_index_digests import TOTAL_MAX, has_keys
from store.verify.plan.ranges import KeysDigest, QueueKey, ReplicaPlan, ReplicaRange, RowsDigest
from store.verify.state.stray_files import check_segment_files

FILES_AT_ONCE = 64
ROWS_AT_ONCE = 1 << 16
TASK_ROWS = 1 << 22
"""Rows of ConsumeQueues in a task: 80 MiB."""


@dataclass(frozen=True, slots=True)
class QueuePart:
    """Rows of one queue, from byte ``low`` to before byte ``high``; ``None`` in the last part."""

    queue: ExpectedQueue
    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class FileTask:
    """The files of one replica that one task checks."""

    replica: ReplicaPlan
    listing: Listing
    log_end: int
    queues: tuple[QueuePart, ...] = ()
    keys: tuple[KeysDigest, ...] = ()
    segments: tuple[str, ...] = ()

    @property
    def weight(self) -> int:
        """How much of :data:`FILES_AT_ONCE` it uses: its files, or more if it has many rows."""
        rows = sum(
            digest.end_offset - digest.first_offset
            for part in self.queues
            for _, digest in part.queue.digests
        )
        files = len(self.queues) + len(self.keys) + len(self.segments)
        return max(files, FILES_AT_ONCE * rows // TASK_ROWS)


@dataclass(slots=True)
class FileResult:
    """The result of a task.

    ``differing``: by queue, the numbers of the ranges with other rows. ``keys``: the first
    positions of the key files that differ.
    """

    queues: dict[QueueKey, QueueFindings] = field(default_factory=dict)
    differing: dict[QueueKey, set[int]] = field(default_factory=dict)
    keys: list[int] = field(default_factory=list)
    segments: list[Finding] = field(default_factory=list)
    unread: list[Finding] = field(default_factory=list)


def check_files(
    fs: ReadableFileSystem, _shared: object, tasks: Sequence[FileTask], _buffers: Buffers
) -> list[FileResult]:
    """Runs a batch of tasks."""
    return [_check(fs, task) for task in tasks]


def batched_tasks(tasks: Sequence[FileTask]) -> Iterator[list[FileTask]]:
    """The tasks in order, in batches of about :data:`FILES_AT_ONCE` files."""
    some: list[FileTask] = []
    weight = 0
    for task in tasks:
        if some and weight + task.weight > FILES_AT_ONCE:
            yield some
            some, weight = [], 0
        some.append(task)
        weight += task.weight
    if some:
        yield some


def _check(fs: ReadableFileSystem, task: FileTask) -> FileResult:
    replica, found = task.replica, FileResult()
    files = AuditFiles(fs, task.listing)
    for part in task.queues:
        _check_queue(files, replica, part, task.log_end, found)
    state = replica.state
    first, end = state.mark.first_position, state.covered_end
    for digest in task.keys:
        path = f"{replica.directory}/keyindex/{segment_name(digest.start)}"
        if not has_keys(files, path, digest, first_position=first, end_position=end):
            found.keys.append(digest.start)
    log = FindingLog(replica.name)
    check_segment_files(files, f"{replica.directory}/commitlog", state, log, task.segments)
    found.segments = log.findings
    found.unread = files.findings({replica.directory: replica.name})
    return found


def _check_queue(
    fs: ReadableFileSystem,
    replica: ReplicaPlan,
    part: QueuePart,
    log_end: int,
    found: FileResult,
) -> None:
    queue = part.queue
    key = queue.key
    directory = f"{replica.directory}/consumequeue/{key[0]}/{key[1]}"
    files = QueueFiles(fs, directory, read_ahead=ROWS_AT_ONCE)
    for number, digest in queue.digests:
        if digest.end_offset <= queue.first_offset:
            continue  # expired
        crcs = (0, 0)
        for first in range(digest.first_offset, digest.end_offset, ROWS_AT_ONCE):
            count = min(ROWS_AT_ONCE, digest.end_offset - first)
            rows = files.rows(first, count)
            crcs = row_crcs(rows, crcs)
            if len(rows) < count * ROW_SIZE:
                break
        if crcs != digest.crcs:
            found.differing.setdefault(key, set()).add(number)
    shape, behind = FindingLog(replica.name), FindingLog(replica.name)
    files.check_shape(part.low, part.high, shape)
    check_seals(fs, files, (part.low, part.high), (queue.first_offset, queue.covered_end), behind)
    if part.high is None:
        files.check_rows_behind(queue.end_offset, log_end, behind)
        if queue.tail is not None and queue.tail.end <= queue.covered_end:
            check_tail(
                files,
                queue.tail,
                queue.first_offset,
                f"{replica.directory}/state/{TAILS_NAME}",
                behind,
            )
    found.queues[key] = QueueFindings(tuple(shape.findings), tuple(behind.findings))


def cut_queues(queues: Iterator[ExpectedQueue]) -> Iterator[list[QueuePart]]:
    """The parts of each task: many small queues, or some rows of a large one."""
    parts: list[QueuePart] = []
    rows = 0
    for queue in queues:
        low = 0
        digests: list[tuple[int, RowsDigest]] = []
        for numbered in queue.digests:
            if rows >= TASK_ROWS:
                high = numbered[1].first_offset * ROW_SIZE
                yield [*parts, QueuePart(queue._replace(digests=tuple(digests)), low, high)]
                parts, rows, low, digests = [], 0, high, []
            digests.append(numbered)
            rows += numbered[1].end_offset - numbered[1].first_offset
        parts.append(QueuePart(queue._replace(digests=tuple(digests)), low, None))
        if len(parts) >= FILES_AT_ONCE:
            yield parts
            parts, rows = [], 0
    if parts:
        yield parts


def cut_files(
    fs: ReadableFileSystem,
    replica: ReplicaPlan,
    listing: Listing,
    queues: Iterator[ExpectedQueue],
    parts: Sequence[ReplicaRange],
) -> Iterator[FileTask]:
    """All tasks of one replica."""
    state, directory = replica.state, replica.directory
    log_end = max([state.durable_position, *(part.end_position for part in parts)])
    for some in cut_queues(queues):
        queues_of = f"{directory}/consumequeue"
        paths = [f"{queues_of}/{part.queue.key[0]}/{part.queue.key[1]}" for part in some]
        held = {path: listing[path] for path in paths if path in listing}
        yield FileTask(replica, held, log_end, queues=tuple(some))
    digests = _key_digests(fs, replica, parts)
    for at in range(0, len(digests), FILES_AT_ONCE):
        yield FileTask(replica, {}, log_end, keys=tuple(digests[at : at + FILES_AT_ONCE]))
    commitlog = f"{directory}/commitlog"
    names = fs.list_directory(commitlog) if fs.exists(commitlog) else []
    for at in range(0, len(names), FILES_AT_ONCE):
        yield FileTask(replica, {}, log_end, segments=tuple(names[at : at + FILES_AT_ONCE]))


def _key_digests(
    fs: ReadableFileSystem, replica: ReplicaPlan, parts: Sequence[ReplicaRange]
) -> list[KeysDigest]:
    """The digest of each file, over all ranges."""
    state = replica.state
    if state.machine is None:
        return []
    starts = list_starts(fs, f"{replica.directory}/keyindex", state.covered_end)
    # Files of expired records are not compared.
    first = max(bisect_right(starts, state.mark.first_position) - 1, 0)
    found = {start: KeysDigest(start, 0, 0) for start in starts[first:]}
    for part in parts:
        for start, rows, total in part.keys.digests:
            if start in found:
                before = found[start]
                both = (before.total + total) & TOTAL_MAX
                found[start] = KeysDigest(start, before.rows + rows, both)
    return list(found.values())
