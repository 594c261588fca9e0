"""Cuts the log of a snapshot into pieces of about equal size, and reads a piece.

A piece is a range of entries. It may end within a segment, so many tasks may read one segment. The
entry index of a snapshot has all of its entries. Each header must agree with the index.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from spark.datasource.snapshots import Snapshot
from spark.errors import ReplicaError
from store.io.filesystem import FileSystem
from store.log.entry import HEADER, HEADER_SIZE, KINDS
from store.log.entry_row import ROW, ROW_SIZE, EntryIndexRow
from store.log.log_reader import HoleReason, LogReader, SegmentFiles
from store.verify.files.row_files import RowFiles

ROWS_AT_ONCE = 1 << 14


@dataclass(frozen=True, slots=True)
class Piece:
    """Entries ``first`` to ``last`` of a snapshot, for one task."""

    snapshot: Snapshot
    first: int
    last: int


@dataclass(slots=True)
class LogEntry:
    """One entry. The CRC of ``body`` is not checked."""

    index: int
    term: int
    kind: str
    position: int
    size: int
    chain_crc: int
    body_crc: int
    path: str
    byte: int
    body: bytes


def cut(snapshot: Snapshot, first: int, last: int, range_bytes: int) -> list[Piece]:
    """Pieces of about ``range_bytes`` bytes of log, over the entries ``first`` to ``last``."""
    manifest = snapshot.manifest
    first, last = max(first, manifest.first_index), min(last, manifest.commit_index)
    if first > last:
        return []
    rows = IndexRows(snapshot.open(), snapshot)
    begin, end = rows.row(first).position, rows.row(last).end
    borders = [first]
    for wanted in range(begin + range_bytes, end, range_bytes):
        low, high = borders[-1] + 1, last + 1
        while low < high:
            middle = (low + high) // 2
            if rows.row(middle).position < wanted:
                low = middle + 1
            else:
                high = middle
        if borders[-1] < low <= last:
            borders.append(low)
    borders.append(last + 1)
    return [Piece(snapshot, here, following - 1) for here, following in pairwise(borders)]


class IndexRows:
    """The entry index of a snapshot. A row must have the index that is asked for."""

    def __init__(self, fs: FileSystem, snapshot: Snapshot) -> None:
        self._files = RowFiles(fs, f"{snapshot.path}/index", ROW_SIZE)

    def row(self, index: int) -> EntryIndexRow:
        return next(self.rows(index, index))

    def rows(self, first: int, last: int) -> Iterator[EntryIndexRow]:
        """Rows of entries. Raises :class:`~spark.errors.ReplicaError` for a missing one."""
        for start in range(first, last + 1, ROWS_AT_ONCE):
            count = min(ROWS_AT_ONCE, last + 1 - start)
            data = self._files.read(start, count)
            for place in range(count):
                row = None
                if len(data) >= (place + 1) * ROW_SIZE:
                    row = EntryIndexRow._make(ROW.unpack_from(data, place * ROW_SIZE))
                index = start + place
                if row is None or row.entry_index != index or row.position < 0:
                    path, byte = self.locate(index)
                    what = "the file ends" if row is None else "another row is there"
                    raise ReplicaError(f"{path}, byte {byte}: not the row of entry {index}: {what}")
                yield row

    def locate(self, index: int) -> tuple[str, int]:
        return self._files.locate(index)


def read_entries(piece: Piece) -> Iterator[LogEntry]:
    """The entries of a piece, one at a time, so that only one entry is in memory.

    Raises :class:`~spark.errors.ReplicaError` with file and byte for a missing entry.
    """
    fs = piece.snapshot.open()
    segments = SegmentFiles(fs, piece.snapshot.path, piece.snapshot.segment_size)
    reader = LogReader(segments)
    try:
        for row in IndexRows(fs, piece.snapshot).rows(piece.first, piece.last):
            path, byte = segments.locate(row.position)
            yield read_entry(reader, row, path, byte)
    finally:
        segments.close()


def read_entry(reader: LogReader, row: EntryIndexRow, path: str, byte: int) -> LogEntry:
    """The entry of a row of the entry index. Its header is compared with the row."""
    where = f"{path}, byte {byte}: entry {row.entry_index}"
    data, missing = reader.read(row.position, max(row.size, HEADER_SIZE))
    if missing is HoleReason.MISSING:
        raise ReplicaError(f"{path}, byte {byte}: the segment is missing")
    if len(data) < row.size or row.size < HEADER_SIZE:
        raise ReplicaError(f"{where} has {row.size} bytes, of which {len(data)} can be read")
    magic, size, index, term, position, _channel, chain, crc, length = HEADER.unpack_from(data)
    stated = (row.magic, row.size, row.entry_index, row.term, row.position, row.size - HEADER_SIZE)
    if stated != (magic, size, index, term, position, length) or magic not in KINDS:
        raise ReplicaError(f"{where}: the header there is not the one that the entry index states")
    kind, body = KINDS[magic].name.lower(), bytes(memoryview(data)[HEADER_SIZE:])
    return LogEntry(index, term, kind, position, size, chain, crc, path, byte, body)
