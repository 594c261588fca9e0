"""Reading entries back from the log, each checked against everything that is known about it."""

from __future__ import annotations

from typing import Any, TypeAlias

from store.commitlog import CommitLog
from store.entry import HEADER_SIZE, Entry, decode_entry
from store.entryindex import ROW, EntryIndex, Row
from store.errors import CorruptEntryError, DamagedError
from store.layout import segment_start

_Row: TypeAlias = tuple[Any, ...]
_POSITION, _SIZE = Row._fields.index("position"), Row._fields.index("size")


def read_entries(
    log: CommitLog, index: EntryIndex, first_index: int, last_index: int, max_bytes: int
) -> list[Entry]:
    """The entries of a range, as many as ``max_bytes`` hold but at least one.

    One read for each segment they lie in; the entries share its bytes. Raises
    :class:`~store.errors.OutOfRangeError` and :class:`~store.errors.DamagedError`.
    """
    # No more rows than could fit, were all entries empty.
    end = min(last_index, first_index + max_bytes // HEADER_SIZE) + 1
    entries: list[Entry] = []
    run: list[_Row] = []
    room = max_bytes
    segment = range(0)
    for row in ROW.iter_unpack(index.rows(first_index, end)):
        room -= row[_SIZE]
        if room < 0 and run:
            break
        if row[_POSITION] not in segment:
            if run:
                _read_run(log, run, entries)
            start = segment_start(row[_POSITION], log.segment_size)
            segment = range(start, start + log.segment_size)
            run = []
        run.append(row)
    _read_run(log, run, entries)
    return entries


def index_at(index: EntryIndex, position: int, last_index: int) -> int:
    """The first entry that begins at ``position`` or behind it, of those up to ``last_index``.

    By the rows alone: what the log itself has at ``position`` may be damaged.
    """
    low, high = index.first_index, last_index
    while low < high:
        middle = (low + high) // 2
        if index.row(middle).position < position:
            low = middle + 1
        else:
            high = middle
    return low


def read_chain_crc(log: CommitLog, row: Row) -> int:
    """The chain CRC that the header of an entry states."""
    return int.from_bytes(log.read(row.position + 36, 4), "big")


def _read_run(log: CommitLog, rows: list[_Row], entries: list[Entry]) -> None:
    """Adds the entries of rows that share a segment."""
    start, last = rows[0][_POSITION], rows[-1]
    data = memoryview(log.read(start, last[_POSITION] + last[_SIZE] - start))
    chain_crc = entries[-1].chain_crc if entries else None
    for row in rows:
        try:
            entry = decode_entry(data, row[_POSITION] - start, chain_crc)
            found = (entry.kind, entry.position, len(entry.data), entry.index, entry.term)
            if found != row:
                raise CorruptEntryError(
                    "entry differs from its row in the entry index", expected=row, found=found
                )
        except CorruptEntryError as error:
            path, byte = log.locate(row[_POSITION])
            raise DamagedError(path, byte, str(error)) from error
        entries.append(entry)
        chain_crc = entry.chain_crc
