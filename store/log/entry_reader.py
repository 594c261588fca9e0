"""Reading entries back from the log, each checked against everything that is known about it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

from store.errors import CorruptEntryError, DamagedError, OutOfRangeError
from store.log.commit_log import CommitLog
from store.log.entry import HEADER, HEADER_SIZE, Entry
from store.log.entry_index import EntryIndex
from store.log.entry_row import ROW, EntryIndexRow
from store.log.layout import segment_start
from store.log.log_reader import Cursor, take_entries

ROWS_AT_FIRST = 64
ROWS_GROWTH = 8
"""Most reads want few entries: so many rows are read first, then each time so many times as
many."""

GUESSES_MAX = 4
"""After so many guesses the search halves the range: entries may have very different sizes."""

_Row: TypeAlias = tuple[Any, ...]
_POSITION, _SIZE, _INDEX = map(EntryIndexRow._fields.index, ("position", "size", "entry_index"))


def read_entries(
    log: CommitLog, index: EntryIndex, first_index: int, last_index: int, max_bytes: int
) -> list[Entry]:
    """The entries of a range, as many as ``max_bytes`` hold but at least one.

    One read for each segment they lie in; the entries share its bytes. Raises
    :class:`~store.errors.OutOfRangeError` and :class:`~store.errors.DamagedError`.
    """
    try:
        return _read_entries(log, index, first_index, last_index, max_bytes)
    except RowDiffersError as error:
        if not index.distrust(error.row):
            raise
        return _read_entries(log, index, first_index, last_index, max_bytes)


def _read_entries(
    log: CommitLog, index: EntryIndex, first_index: int, last_index: int, max_bytes: int
) -> list[Entry]:
    entries: list[Entry] = []
    run: list[_Row] = []
    room = max_bytes
    segment = range(0)
    for row in _rows(index, first_index, last_index, max_bytes):
        room -= row[_SIZE]
        if room < 0 and run:
            break
        if row[_POSITION] not in segment:
            if run:
                _read_run(log, index, run, entries)
            start = segment_start(row[_POSITION], log.segment_size)
            segment = range(start, start + log.segment_size)
            run = []
        run.append(row)
    _read_run(log, index, run, entries)
    return entries


class EntryRange(NamedTuple):
    """Whole entries that lie one behind the other in a segment, checked."""

    position: int
    data: memoryview
    first_size: int
    """Bytes of the first entry."""


def read_range(
    log: CommitLog, index: EntryIndex, first_index: int, last_index: int, max_bytes: int
) -> EntryRange:
    """As :func:`read_entries`, as far as one segment goes; as one piece of memory."""
    try:
        return _read_range(log, index, first_index, last_index, max_bytes)
    except RowDiffersError as error:
        if not index.distrust(error.row):
            raise
        return _read_range(log, index, first_index, last_index, max_bytes)


def _read_range(
    log: CommitLog, index: EntryIndex, first_index: int, last_index: int, max_bytes: int
) -> EntryRange:
    rows: list[_Row] = []
    for row in _rows(index, first_index, last_index, max_bytes):
        if rows and (
            row[_POSITION] != rows[-1][_POSITION] + rows[-1][_SIZE]
            or row[_POSITION] + row[_SIZE] - rows[0][_POSITION] > max_bytes
        ):
            break
        rows.append(row)
    data = _read_run(log, index, rows, [])
    return EntryRange(rows[0][_POSITION], data, rows[0][_SIZE])


def _rows(index: EntryIndex, first_index: int, last_index: int, max_bytes: int) -> Iterator[_Row]:
    """The rows of the entries that fit into ``max_bytes``, some at a time.

    Raises :class:`~store.errors.OutOfRangeError` when the next are not there.
    """
    # No more than would fit if all entries were empty.
    end = min(last_index, first_index + max_bytes // HEADER_SIZE) + 1
    if first_index >= end:
        index.rows(first_index, end)  # raises, saying what it has
    first, count = first_index, ROWS_AT_FIRST
    while first < end:
        for row in ROW.iter_unpack(index.rows(first, min(first + count, end))):
            if not row[_SIZE]:
                raise index.unknown(row[_INDEX])
            yield row
        first, count = first + count, count * ROWS_GROWTH


def index_at(index: EntryIndex, position: int, last_index: int) -> int:
    """The first entry that begins at ``position`` or behind it, of those up to ``last_index``.

    By the rows alone: the log may be damaged at ``position``.
    """
    low, high = index.first_index, last_index
    while low < high:
        middle = (low + high) // 2
        if index.position(middle) < position:
            low = middle + 1
        else:
            high = middle
    return low


def entry_at(log: CommitLog, index: EntryIndex, position: int, last_index: int) -> int:
    """The last entry that begins at ``position`` or before it, of those up to ``last_index``.

    Looks first where it would be if all entries had the same size, so few rows are read. Raises
    :class:`~store.errors.OutOfRangeError` if there is none.
    """
    first_index = index.first_index
    try:
        return _entry_at(log, index, position, first_index, last_index)
    except OutOfRangeError:
        if first_index == index.first_index:
            raise
        return entry_at(log, index, position, last_index)  # entries have just expired


def _entry_at(log: CommitLog, index: EntryIndex, position: int, low: int, high: int) -> int:
    begin, end = log.first_position, log.end
    looks = 0
    while True:
        looks += 1
        share = (position - begin) / (end - begin) if end > begin and looks <= GUESSES_MAX else 0.5
        middle = low + int(min(max(share, 0.0), 1.0) * (high - low))
        first = max(min(middle, high + 1 - ROWS_AT_FIRST // 2) - ROWS_AT_FIRST // 2, low)
        rows = list(ROW.iter_unpack(index.rows(first, min(first + ROWS_AT_FIRST, high + 1))))
        starts = [row[_POSITION] for row in rows]
        if position < starts[0] and first > low:
            high, end = first - 1, starts[0]
        elif position >= starts[-1] + rows[-1][_SIZE] and first + len(rows) <= high:
            low, begin = first + len(rows), starts[-1] + rows[-1][_SIZE]
        else:
            return first + bisect_right(starts, position) - 1


def read_chain_crc(log: CommitLog, index: EntryIndex, row: EntryIndexRow) -> int:
    """The chain CRC that the header of an entry states."""
    return int.from_bytes(_read_by(log, index, row, row.position + 36, 4), "big")


def _read_run(
    log: CommitLog, index: EntryIndex, rows: list[_Row], entries: list[Entry]
) -> memoryview:
    """Adds the entries of rows that share a segment; returns the bytes that they share."""
    first, last = rows[0], rows[-1]
    start = first[_POSITION]
    end = EntryIndexRow._make(last)
    data = memoryview(_read_by(log, index, end, start, end.end - start))
    cursor = Cursor(first[_INDEX], start, entries[-1].chain_crc if entries else None)
    before = len(entries)
    error = None
    try:
        take_entries(data, cursor, log.segment_size, last[_INDEX], entries)
    except CorruptEntryError as caught:
        error = caught
    for row, entry in zip(rows, islice(entries, before, None), strict=False):
        if (entry.kind, entry.position, len(entry.data), entry.index, entry.term) != row:
            raise RowDiffersError(log, EntryIndexRow._make(row), f"found {entry}")
    if cursor.index <= last[_INDEX]:
        row = EntryIndexRow._make(rows[len(entries) - before])
        if error is None or not _says_the_same(data[row.position - start :], row):
            raise RowDiffersError(log, row, str(error or "the entry before it ends elsewhere"))
        raise DamagedError(*log.locate(cursor.position), str(error)) from error
    return data


class RowDiffersError(DamagedError):
    """An entry is not what its row in the entry index says. One of them is wrong."""

    def __init__(self, log: CommitLog, row: EntryIndexRow, reason: str) -> None:
        self.row = row
        path, byte = log.locate(row.position)
        told = f"entry differs from its row in the entry index: {row}; {reason}"
        super().__init__(path, byte, told)


def _says_the_same(data: memoryview, row: EntryIndexRow) -> bool:
    """Whether the header in ``data`` says what the row says."""
    if len(data) < HEADER_SIZE:
        return False
    magic, size, index, term, position, *_ = HEADER.unpack_from(data)
    return row == (magic, position, size, index, term)


def _read_by(
    log: CommitLog, index: EntryIndex, row: EntryIndexRow, position: int, size: int
) -> bytes:
    """Bytes to which rows lead; ``row`` is the last of them. Rows are written after their entries
    and removed before them. So a row that leads out of the log is wrong.
    """
    try:
        return log.read(position, size)
    except OutOfRangeError as error:
        if not index.first_index <= row.entry_index < index.end_index:
            raise
        raise RowDiffersError(log, row, str(error)) from error
