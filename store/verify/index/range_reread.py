"""Reads a range again, for derived files that differ from its digests.

The files are compared row by row, to find the wrong rows.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from store.errors import CorruptBatchError, DamagedError
from store.index.block_seals import ROW_SIZE
from store.index.key_file import HEADER, KEY_ROW_SIZE, VERSION, IndexFile, read_header
from store.io.filesystem import ReadableFileSystem
from store.log.entry import EntryKind
from store.log.layout import segment_name
from store.message.batch import decode_batch
from store.verify.files.audit_files import AuditFiles
from store.verify.files.read_buffers import Buffers
from store.verify.files.row_files import is_torn, list_starts
from store.verify.findings import Finding, FindingKind, FindingLog
from store.verify.index.consume_queue_check import ADVICE
from store.verify.index.consume_queue_files import QueueFiles
from store.verify.index.key_file_check import (
    damaged_byte,
    edges_of,
    first_unordered,
    stated_edges,
    wrong_rows,
)
from store.verify.index.key_index_digests import index_of, missing_keys
from store.verify.log.batch_columns import BatchColumns, TopicNumbers, plain_columns, read_columns
from store.verify.log.log_commands import commands_of
from store.verify.log.log_walk import DamagedLogWalk
from store.verify.log.queue_row_runs import QueueRowRun, QueueRowRuns
from store.verify.log.record_columns import KEY_ROWS
from store.verify.plan.ranges import (
    GroupPlan,
    MissingKeys,
    QueueKey,
    ReplicaPlan,
    WrongRows,
)

ROWS_AT_ONCE = 1 << 16
UNDOUBTED_SIZE = 64 << 20
PIECE_SIZE = 1 << 20

KeyRows = NDArray[np.void]


@dataclass(frozen=True, slots=True)
class RangeReread:
    """The files to compare with range ``number``, of the replica at ``place``."""

    number: int
    place: int
    queues: frozenset[QueueKey] = frozenset()
    keys: bool = False


@dataclass(slots=True)
class RangeDifferences:
    """Wrong rows of queues, key rows that no file has, and other findings."""

    queues: dict[QueueKey, list[WrongRows]] = field(default_factory=dict)
    missing: MissingKeys | None = None
    findings: tuple[Finding, ...] = ()


def reread_range(
    fs: ReadableFileSystem, group: GroupPlan, reading: RangeReread, buffers: Buffers
) -> RangeDifferences:
    """Compares derived files of one replica with its part of a range."""
    replica, plan = group.replicas[reading.place], group.ranges[reading.number]
    border = plan.borders[reading.place]
    found = RangeDifferences()
    if border is None:
        return found
    files = AuditFiles(fs, group.listing)
    log = FindingLog(replica.name)
    unused = FindingLog(replica.name)  # damage of the log was reported the first time
    walk = DamagedLogWalk(
        files,
        replica.directory,
        replica.state,
        unused,
        directories=group.directories,
        border=border,
        last_index=plan.last_index,
        buffers=buffers,
    )
    topics = TopicNumbers()
    runs, queues = QueueRowRuns(topics), _QueueComparison(files, replica, reading.queues)
    key_rows: list[bytes] = []
    entries: list[tuple[int, int]] = []
    for columns in _read_columns(walk, topics):
        runs.add(columns)
        if runs.count >= ROWS_AT_ONCE:
            queues.take(runs.take())
        if columns.key_rows and reading.keys:
            key_rows.append(columns.key_rows)
            entries += [(entry.position, entry.index) for entry in columns.entries]
    queues.take(runs.take())
    found.queues = queues.wrong
    if reading.keys:
        keys = _KeyComparison(files, replica, log, entries)
        end = group.range_end(plan, reading.place)
        found.missing = keys.compare(b"".join(key_rows), border.position, end, walk.lost)
    unread = files.findings({replica.directory: replica.name})
    kinds = {FindingKind.CONSUME_QUEUE, *([FindingKind.KEY_INDEX] if reading.keys else [])}
    found.findings = (*log.findings, *(one for one in unread if one.kind in kinds))
    return found


def _read_columns(walk: DamagedLogWalk, topics: TopicNumbers) -> Iterator[BatchColumns]:
    """The batches of a range, right or wrong: their rows are in the files in any case."""
    for window in walk.windows():
        data = [entry for entry in window.entries if entry.kind is EntryKind.DATA]
        columns = read_columns(window.data, window.position, data, topics) if data else None
        if columns is not None:
            yield columns
            continue
        for entry in data:
            try:
                alone = plain_columns([entry], [decode_batch(entry.body)], topics)
                commands_of(alone, topics)
            except CorruptBatchError:
                continue
            yield alone


class _QueueComparison:
    """Compares rows of some queues with their files."""

    def __init__(
        self,
        fs: AuditFiles,
        replica: ReplicaPlan,
        wanted: frozenset[QueueKey],
    ) -> None:
        self._files = {
            key: QueueFiles(fs, f"{replica.directory}/consumequeue/{key[0]}/{key[1]}")
            for key in wanted
        }
        machine = replica.state.machine
        lengths = () if machine is None else machine.queues
        self._lengths = {(each.topic, each.queue_id): each for each in lengths}
        self.wrong: dict[QueueKey, list[WrongRows]] = {}

    def take(self, runs: Sequence[QueueRowRun]) -> None:
        for run in runs:
            files = self._files.get(run.key)
            if files is not None:
                self._compare(files, run)

    def _compare(self, files: QueueFiles, run: QueueRowRun) -> None:
        length = self._lengths.get(run.key)
        retained, covered_end = (0, 0) if length is None else length[2:]
        first_offset = max(retained, run.first_offset)
        rows = run.rows[(first_offset - run.first_offset) * ROW_SIZE :]
        found = files.rows(first_offset, len(rows) // ROW_SIZE)
        if found == rows:
            return
        for at in range(0, len(rows), ROW_SIZE):
            offset = first_offset + at // ROW_SIZE
            right, row = rows[at : at + ROW_SIZE], found[at : at + ROW_SIZE]
            if row != right and (offset < covered_end or not is_torn(row, right)):
                index = run.index_of(offset)
                place = files.locate(offset)
                wrong = WrongRows(*place, index, index, offset, offset, right, row)
                wrong.add_to(self.wrong.setdefault(run.key, []))


class _KeyComparison:
    """Compares the key rows of a range with the files of a replica."""

    def __init__(
        self,
        fs: AuditFiles,
        replica: ReplicaPlan,
        log: FindingLog,
        entries: Sequence[tuple[int, int]],
    ) -> None:
        self._fs = fs
        self._directory = f"{replica.directory}/keyindex"
        self._first_position = replica.state.mark.first_position
        self._covered_end = replica.state.covered_end
        self._log = log
        self._entries = entries

    def compare(
        self, data: bytes, begin: int, end: int | None, lost: Sequence[tuple[int, int]]
    ) -> MissingKeys | None:
        """Compares key rows with the files. Returns the rows that no file has.

        ``data``: the key rows of the records from position ``begin`` to before ``end``, without
        those in the ranges ``lost``. ``end`` is ``None`` if the small files do not say it.
        """
        end = self._covered_end if end is None else min(self._covered_end, end)
        rows = np.frombuffer(data, KEY_ROWS)
        rows = rows[np.argsort(rows["position"], kind="stable")]
        positions = rows["position"].astype(np.int64)
        missing = np.ones(len(rows), bool)
        for file, is_whole in self._list_files(begin, end):
            place = slice(
                int(np.searchsorted(positions, file.first_position)),
                int(np.searchsorted(positions, file.last_position, "right")),
            )
            missing[place] = False
            found = self._read(file) if is_whole else None
            if found is None:
                continue
            stored = found["position"].astype(np.int64)
            known = (stored >= max(self._first_position, begin)) & (stored < end)
            for first, stop in lost:
                known &= (stored < first) | (stored >= stop)
            expected = rows[place]
            expected = expected[np.lexsort((expected["position"], expected["hash"]))]
            if found[known].tobytes() != expected.tobytes():
                self._report_different(file, found, known, expected)
        return missing_keys(positions[missing], self._entries) if missing.any() else None

    def _list_files(self, begin: int, end: int) -> Iterator[tuple[IndexFile, bool]]:
        """The files that may have rows of the range, and whether their headers are intact.

        Files that begin behind the checkpoint are left out: the next start removes them.
        """
        starts = list_starts(self._fs, self._directory, self._covered_end)
        # A damaged file counts as one up to the next file, so its rows are not reported as missing.
        ends = [*starts[1:], self._covered_end]
        place = slice(max(bisect_right(starts, begin) - 1, 0), bisect_left(starts, end))
        for start, following in zip(starts[place], ends[place], strict=True):
            path = f"{self._directory}/{segment_name(start)}"
            is_whole = True
            try:
                file = read_header(self._fs, path)
                if file.first_position != start or file.last_position < start:
                    raise DamagedError(path, 8, f"positions from {file.first_position}")
            except DamagedError as error:
                is_whole, at = False, damaged_byte(self._fs, error)
                self._report(error.path, at, "a key index file", error.reason)
                file = IndexFile(path, start, following - 1, 0, 0, 0, 0)
            if file.last_position >= begin:
                yield file, is_whole

    def _read(self, file: IndexFile) -> KeyRows | None:
        """The rows of a file, if they have their CRCs and are in order."""
        data = self._read_data(file)
        wrong = wrong_rows(file, data)
        if wrong is not None:
            at, right_crc, found_crc = wrong
            self._log.add(
                FindingKind.KEY_INDEX,
                file.path,
                HEADER.size + at,
                f"rows with CRC {right_crc:08x}",
                f"{found_crc:08x}",
                ADVICE,
                first=self._index_of(file.first_position),
                last=self._index_of(file.last_position),
            )
            return None
        rows = np.frombuffer(data, KEY_ROWS)
        unordered = first_unordered(rows)
        if unordered is not None:
            row = rows[unordered : unordered + 1].tobytes().hex()
            at = HEADER.size + unordered * KEY_ROW_SIZE
            self._report(file.path, at, "rows sorted by hash, then position", f"the row {row}")
            return None
        stated, found = stated_edges(file), edges_of(rows)
        if stated != found:
            expected = f"positions and seconds {found}, as its rows have them"
            self._report(file.path, 8, expected, f"{stated}")
        return rows

    def _read_data(self, file: IndexFile) -> bytes:
        """All rows. If there are very many, they are read only if their CRC is right."""
        size = file.count * KEY_ROW_SIZE
        with closing(self._fs.open(file.path, writable=False)) as handle:
            if file.version != VERSION and size > UNDOUBTED_SIZE:
                crc = 0
                for at in range(0, size, PIECE_SIZE):
                    crc = crc32c(handle.pread(min(PIECE_SIZE, size - at), HEADER.size + at), crc)
                if crc != file.crc:
                    size = 0
            return handle.pread(size, HEADER.size)

    def _report_different(
        self, file: IndexFile, rows: KeyRows, known: NDArray[np.bool_], expected: KeyRows
    ) -> None:
        """Reports the first row that is missing or too many. ``known``: the rows to compare."""
        found = rows[known]
        common = min(len(found), len(expected))
        differs = np.flatnonzero(found[:common].view("V16") != expected[:common].view("V16"))
        at = int(differs[0]) if len(differs) else common
        right, wrong = expected[at : at + 1], found[at : at + 1]
        is_extra = len(right) == 0 or (len(wrong) > 0 and wrong.tobytes() < right.tobytes())
        odd = wrong if is_extra else right
        if is_extra:
            place = int(np.flatnonzero(known)[at])
        else:  # where the row belongs
            before = rows["hash"] < odd["hash"]
            before |= (rows["hash"] == odd["hash"]) & (rows["position"] < odd["position"])
            place = int(np.count_nonzero(before))
        row, at = f"the row {odd.tobytes().hex()}", HEADER.size + place * KEY_ROW_SIZE
        if is_extra:  # its position may be wrong, so no entry is named
            self._report(file.path, at, "a row that the log has, once", row)
        else:
            index = self._index_of(int(odd["position"][0]))
            self._report(file.path, at, row, "no such row", index)

    def _report(
        self, path: str, at: int, expected: str, found: str, index: int | None = None
    ) -> None:
        self._log.add(FindingKind.KEY_INDEX, path, at, expected, found, ADVICE, first=index)

    def _index_of(self, position: int) -> int:
        return index_of(position, self._entries) if self._entries else -1
