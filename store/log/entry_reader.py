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

CORRUPT_ROWS_MAX = 512
"""So many corrupt rows are stepped over: four blocks of a disk."""

_Row: TypeAlias = tuple[Any, ...]
_POSITION, _SIZE, _INDEX = map(EntryIndexRow._fields.index, ("position", "size", "entry_index"))


def read_entries(
    log: CommitLog, index: EntryIndex, first_index: int, last_index: int, max_bytes: int
) -> list[Entry]:
    """The entries of a range, as many as ``max_bytes`` hold but at least one.

    One read for each segment they lie in; the entries share its bytes. Raises
    :class:`~store.errors.OutOfRangeError` and :class:`~store.errors.DamagedError`.
    """
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
        yield from ROW.iter_unpack(index.rows(first, min(first + count, end)))
        first, count = first + count, count * ROWS_GROWTH


def index_at(index: EntryIndex, position: int, last_index: int) -> int:
    """The first entry that begins at ``position`` or behind it, of those up to ``last_index``.

    By the rows alone: the log may be damaged at ``position``.
    """
    low, high = index.first_index, last_index
    while low < high:
        middle = (low + high) // 2
        if index.row(middle).position < position:
            low = middle + 1
        else:
            high = middle
    return low


def entry_at(log: CommitLog, index: EntryIndex, position: int, last_index: int) -> int:
    """The last entry that begins at ``position`` or before it, of those up to ``last_index``.

    Looks first where it would be if all entries had the same size, so few rows are read. Raises
    :class:`~store.errors.OutOfRangeError` if there is none.
    """
    low, high = index.first_index, last_index
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


def confirmed_entry_at(log: CommitLog, index: EntryIndex, position: int, last_index: int) -> int:
    """As :func:`entry_at`, but corrupt rows do not mislead it. It trusts only rows that agree with
    the headers of their entries, so it reads more. If the row of ``position`` itself is corrupt, it
    returns the first entry that may be the one. Raises :class:`~store.errors.DamagedError` if too
    many rows in a row are corrupt, and :class:`~store.errors.OutOfRangeError` if all these entries
    end before ``position``, or none begins there or before.
    """
    if position < log.first_position:
        raise OutOfRangeError(f"position {position} is before the log's {log.first_position}")

    def confirmed(place: int) -> EntryIndexRow | None:
        try:
            row = index.row(place)
            header = _read_by(log, index, row, row.position, HEADER_SIZE)
        except DamagedError:
            return None
        magic, size, entry_index, term, begin, *_ = HEADER.unpack(header)
        return row if row == EntryIndexRow(magic, begin, size, entry_index, term) else None

    low, high = index.first_index, last_index
    while low < high:
        place = middle = (low + high + 1) // 2
        while (row := confirmed(place)) is None and place < high:
            place += 1
            if place - middle > CORRUPT_ROWS_MAX:
                path, byte = index.locate(middle)
                raise DamagedError(
                    path, byte, f"none of {CORRUPT_ROWS_MAX} rows is that of its entry"
                )
        if row is not None and row.position <= position:
            low = place
        else:
            high = middle - 1
    row = confirmed(low)
    if row is None or position < row.end:
        return low
    if low == last_index:
        raise OutOfRangeError(f"position {position} is behind entry {low}, which ends at {row.end}")
    return low + 1 if confirmed(low + 1) is None else low


def read_chain_crc(log: CommitLog, index: EntryIndex, row: EntryIndexRow) -> int:
    """The chain CRC that the header of an entry states."""
    return int.from_bytes(_read_by(log, index, row, row.position + 36, 4), "big")


def _read_run(
    log: CommitLog, index: EntryIndex, rows: list[_Row], entries: list[Entry]
) -> memoryview:
    """Adds the entries of rows that share a segment; returns the bytes that they share."""
    first, last = rows[0], rows[-1]
    start = first[_POSITION]
    data = memoryview(_read_by(log, index, first, start, last[_POSITION] + last[_SIZE] - start))
    cursor = Cursor(first[_INDEX], start, entries[-1].chain_crc if entries else None)
    before = len(entries)
    error = None
    try:
        take_entries(data, cursor, log.segment_size, last[_INDEX], entries)
    except CorruptEntryError as caught:
        error = caught
    for row, entry in zip(rows, islice(entries, before, None), strict=False):
        found = (entry.kind, entry.position, len(entry.data), entry.index, entry.term)
        if found == row:
            continue
        if row[_POSITION] != entry.position:
            raise _wrong_row(index, row, f"the entry before it ends at {entry.position}")
        reason = f"entry differs from its row in the entry index: expected {row}, found {found}"
        raise DamagedError(*log.locate(entry.position), reason)
    if cursor.index <= last[_INDEX]:
        row = rows[len(entries) - before]
        if error is None or row[_POSITION] != cursor.position:
            raise _wrong_row(index, row, f"the entry before it ends at {cursor.position}")
        raise DamagedError(*log.locate(cursor.position), str(error)) from error
    return data


def _read_by(log: CommitLog, index: EntryIndex, row: _Row, position: int, size: int) -> bytes:
    """Bytes to which rows lead; ``row`` is the first of them. Rows are written after their entries
    and removed before them. So a row that leads out of the log is corrupt.
    """
    try:
        return log.read(position, size)
    except OutOfRangeError as error:
        if not index.first_index <= row[_INDEX] < index.end_index:
            raise
        raise _wrong_row(index, row, str(error)) from error


def _wrong_row(index: EntryIndex, row: _Row, reason: str) -> DamagedError:
    path, byte = index.locate(row[_INDEX])
    return DamagedError(path, byte, f"row {row} of the entry index leads astray: {reason}")
