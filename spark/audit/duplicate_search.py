"""The search for messages that are in the log twice: equal topic and unique key.

A producer that gets no answer sends again, so this is no damage of a replica. The key index has the
sorted hashes of the unique keys. The search goes slice by slice of the hashes. A slice needs only a
part of each file. Records are read only if a hash occurs twice, some at a time in the order of the
log. Key rows behind the checkpoint are in no file yet, and come from the log.

Hashes are not spread evenly: all messages may share a word of their keys. A slice with too many
rows is halved, down to the rows of one hash, which are read piece by piece.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from spark.audit.log_records import LogRecords
from store.errors import CorruptRecordError, DamagedError
from store.index.key_file import HEADER, KEY_ROW_SIZE, IndexFile, read_header, read_row
from store.io.filesystem import FileSystem
from store.log.entry import EntryKind
from store.log.entry_row import ROW, ROW_SIZE, EntryIndexRow
from store.log.layout import parse_segment_name
from store.message.batch import decode_batch
from store.message.properties import UNIQUE_KEY, find_property
from store.message.record import key_hash
from store.verify.files.read_buffers import Buffers
from store.verify.files.row_files import RowFiles
from store.verify.findings import Finding, FindingKind, FindingLog
from store.verify.log.log_walk import LogWalk
from store.verify.log.record_columns import KEY_ROWS
from store.verify.plan.ranges import GroupPlan

HASHES = 1 << 32
FOUND_MAX = 1000
"""At most this many findings of one slice."""
ROWS_AT_ONCE = 1 << 22
"""Pace: key rows in memory: 64 MiB, and some times as much while they are sorted."""
READ_AT_ONCE = 1 << 16
"""Pace: records that are read in the order of the log."""
ADVICE = (
    "nothing is wrong with the replica: a producer that got no answer sent the message again; let "
    "consumers of the topic expect that"
)
# Topics of copies that a broker made.
_INTERNAL = ("%", "RMQ_SYS_", "rmq_sys_", "SCHEDULE_TOPIC_", "TRANS_CHECK_")

KeyRows: TypeAlias = NDArray[np.void]
"""Rows of :data:`~store.verify.log.record_columns.KEY_ROWS`."""


class Place(NamedTuple):
    """Where a message is: its number in its queue, and the position of its record."""

    queue_id: int
    queue_offset: int
    position: int

    def __str__(self) -> str:
        queue = f"queue {self.queue_id} (position {self.position})"
        return f"number {self.queue_offset} of {queue}"


class Copies:
    """Messages with equal topic and unique key. The size does not depend on their number."""

    def __init__(self, topic: str, unique: bytes, first: Place) -> None:
        self.topic = topic
        self.unique = unique
        self.first = self.second = self.last = first
        self.count = 1

    def add(self, place: Place) -> None:
        """Takes the next message, or the last one again."""
        if place.position > self.last.position:
            self.second = place if self.count == 1 else self.second
            self.last = place
            self.count += 1


class DuplicateSearch:
    """The search in the committed log of one replica of a group.

    Raises :class:`~store.errors.StoreError` if log or key index are damaged.
    """

    def __init__(self, fs: FileSystem, group: GroupPlan, place: int) -> None:
        self._fs = fs
        self._group = group
        self._place = place
        self._replica = group.replicas[place]
        self._records = LogRecords(fs, self._replica.directory, group.segment_size)
        self._entries = RowFiles(fs, f"{self._replica.directory}/index", ROW_SIZE)

    def find(self, low: int, high: int) -> list[Finding]:
        """Findings about messages whose unique key has a hash from ``low`` to before ``high``."""
        files = sorted(self._files(), key=lambda file: file.path)
        behind = [
            rows[(rows["hash"] >= low) & (rows["hash"] < high)] for rows in self._rows_behind()
        ]
        findings: list[Finding] = []
        try:
            for copies in self._copies(files, in_order(behind), low, high):
                findings.append(self._finding(copies))
                if len(findings) == FOUND_MAX:
                    break
        finally:
            self._records.close()
        return findings

    def _copies(
        self, files: list[IndexFile], behind: KeyRows, low: int, high: int
    ) -> Iterator[Copies]:
        """Messages that are there again. ``behind`` has the sorted rows that are in no file."""
        bounds = [self._bounds(file, low, high) for file in files]
        begin, end = np.searchsorted(behind["hash"].astype(np.int64), (low, high)).tolist()
        count = end - begin + sum(stop - start for start, stop in bounds)
        if count <= ROWS_AT_ONCE:
            parts = (self._rows(*part) for part in zip(files, bounds, strict=True))
            yield from self._copies_in(in_order([*parts, behind[begin:end]]))
        elif high - low > 1:
            middle = (low + high) // 2
            yield from self._copies(files, behind[begin:end], low, middle)
            yield from self._copies(files, behind[begin:end], middle, high)
        else:
            found: dict[tuple[str, bytes], Copies] = {}
            for file, (start, stop) in zip(files, bounds, strict=True):
                for at in range(start, stop, READ_AT_ONCE):
                    self._read(self._rows(file, (at, min(stop, at + READ_AT_ONCE))), found)
            self._read(behind[begin:end], found)
            yield from (copies for copies in found.values() if copies.count > 1)

    def _copies_in(self, rows: KeyRows) -> Iterator[Copies]:
        """As :meth:`_copies`, of sorted rows."""
        hashes = rows["hash"].astype(np.int64)
        _, counts = np.unique(hashes, return_counts=True)
        again = np.repeat(counts > 1, counts)
        rows, hashes = rows[again], hashes[again]
        begin = 0
        while begin < len(rows):
            last = min(begin + READ_AT_ONCE, len(rows)) - 1
            end = int(np.searchsorted(hashes, hashes[last], "right"))
            found: dict[tuple[str, bytes], Copies] = {}
            for at in range(begin, end, READ_AT_ONCE):
                some = rows[at : min(end, at + READ_AT_ONCE)]
                self._read(some[np.argsort(some["position"])], found)
            yield from (copies for copies in found.values() if copies.count > 1)
            begin = end

    def _read(self, rows: KeyRows, found: dict[tuple[str, bytes], Copies]) -> None:
        """Adds the messages whose unique key has the hash of their row. Of each hash, the rows come
        in the order of the log."""
        for wanted, position in zip(rows["hash"].tolist(), rows["position"].tolist(), strict=True):
            try:
                record = self._records.read(position)
            except CorruptRecordError as error:
                path, byte = self._records.locate(position)
                raise DamagedError(path, byte, f"no message: {error}") from error
            if record is None or record.topic.startswith(_INTERNAL):
                continue  # expired, or not sent by a producer
            unique = find_property(record.properties, UNIQUE_KEY) or b""
            if not unique or key_hash(record.topic, unique) != wanted:
                continue
            place = Place(record.queue_id, record.queue_offset, position)
            known = found.setdefault((record.topic, unique), Copies(record.topic, unique, place))
            known.add(place)

    def _finding(self, copies: Copies) -> Finding:
        path, byte = self._records.locate(copies.second.position)
        log = FindingLog(self._replica.name)
        unique = copies.unique.decode(errors="replace")
        log.add(
            FindingKind.DUPLICATE,
            path,
            byte,
            f"message {unique} of {copies.topic} once: {copies.first}",
            f"{copies.count} times, the next as {copies.second}",
            ADVICE,
            first=self._index_of(copies.first.position),
            last=self._index_of(copies.last.position),
        )
        return log.findings[0]

    # --- positions

    def _index_of(self, position: int) -> int | None:
        """The entry that holds a position; ``None`` if it is not in the entry index yet."""
        low, high = self._replica.first_index, self._replica.known_index
        while low < high:
            middle = (low + high + 1) // 2
            data = self._entries.read(middle, 1)
            if len(data) == ROW_SIZE and ROW.unpack(data)[1] <= position:
                low = middle
            else:
                high = middle - 1
        data = self._entries.read(low, 1)
        row = EntryIndexRow._make(ROW.unpack(data)) if len(data) == ROW_SIZE else None
        return low if row is not None and row.position <= position < row.end else None

    def _files(self) -> Iterator[IndexFile]:
        directory = f"{self._replica.directory}/keyindex"
        for name in self._fs.list_directory(directory) if self._fs.exists(directory) else []:
            start = parse_segment_name(name)
            if start is not None and start < self._covered_end:
                yield read_header(self._fs, f"{directory}/{name}")

    @property
    def _covered_end(self) -> int:
        """The position up to which key rows are in files."""
        for plan in self._group.ranges:
            border = plan.borders[self._place]
            if border is not None and border.index == self._replica.checkpoint_index + 1:
                return border.position
        return 0 if self._replica.checkpoint_index < 0 else 1 << 62

    def _bounds(self, file: IndexFile, low: int, high: int) -> tuple[int, int]:
        """The rows of a file with hashes from ``low`` to before ``high``."""
        with closing(self._fs.open(file.path, writable=False)) as handle:

            def hash_of(row: int) -> int:
                return read_row(handle, row)[0]

            begin = bisect_left(range(file.count), low, key=hash_of)
            return begin, bisect_left(range(file.count), high, begin, key=hash_of)

    def _rows(self, file: IndexFile, bounds: tuple[int, int]) -> KeyRows:
        begin, end = bounds
        size = (end - begin) * KEY_ROW_SIZE
        with closing(self._fs.open(file.path, writable=False)) as handle:
            data = handle.pread(size, HEADER.size + begin * KEY_ROW_SIZE)
        if len(data) != size:
            raise DamagedError(file.path, HEADER.size, f"fewer than {file.count} rows")
        return np.frombuffer(data, KEY_ROWS)

    def _rows_behind(self) -> Iterator[KeyRows]:
        """The key rows of committed entries behind the checkpoint."""
        for plan in self._group.ranges:
            border = plan.borders[self._place]
            if (
                border is None
                or plan.last_index is None
                or border.index <= self._replica.checkpoint_index
            ):
                continue
            log = LogWalk(
                self._fs,
                [self._replica.directory],
                self._group.segment_size,
                border=border,
                last_index=plan.last_index,
                buffers=Buffers(),
            )
            for window in log.windows():
                for entry in window.entries:
                    if entry.kind is EntryKind.DATA:
                        batch = decode_batch(entry.body)
                        yield np.frombuffer(bytes(batch.key_rows), KEY_ROWS)


def in_order(parts: Iterable[KeyRows]) -> KeyRows:
    """Rows by hash and position, each once: a unique key may be among the keys, too."""
    rows = np.concatenate([*parts, np.empty(0, KEY_ROWS)])
    rows = rows[np.lexsort((rows["position"], rows["hash"]))]
    other = np.ones(len(rows), bool)
    other[1:] = (np.diff(rows["hash"]) != 0) | (np.diff(rows["position"]) != 0)
    return rows[other]
