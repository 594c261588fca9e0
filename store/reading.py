"""Reading entries back from the log, each checked against everything that is known about it."""

from __future__ import annotations

from store.commitlog import CommitLog
from store.entry import HEADER_SIZE, Entry, decode_entry
from store.entryindex import ROW, EntryIndex, Row
from store.errors import CorruptEntryError, DamagedError
from store.layout import segment_start


def read_entries(
    log: CommitLog, index: EntryIndex, first_index: int, last_index: int, max_bytes: int
) -> list[Entry]:
    """The entries of a range, as many as ``max_bytes`` hold but at least one.

    One read for each segment they lie in; the entries share its bytes. Raises
    :class:`~store.errors.OutOfRangeError` and :class:`~store.errors.DamagedError`.
    """
    # No more rows than could fit, were all entries empty.
    end = min(last_index, first_index + max_bytes // HEADER_SIZE) + 1
    rows: list[Row] = []
    room = max_bytes
    for fields in ROW.iter_unpack(index.rows(first_index, end)):
        row = Row._make(fields)
        room -= row.size
        if room < 0 and rows:
            break
        rows.append(row)
    entries: list[Entry] = []
    while len(entries) < len(rows):
        _read_run(log, rows[len(entries) :], entries)
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


def _read_run(log: CommitLog, rows: list[Row], entries: list[Entry]) -> None:
    """Adds the entries of those first rows that share a segment."""
    start = rows[0].position
    segment = segment_start(start, log.segment_size)
    run = [row for row in rows if segment_start(row.position, log.segment_size) == segment]
    data = memoryview(log.read(start, run[-1].end - start))
    chain_crc = entries[-1].chain_crc if entries else None
    for row in run:
        try:
            entry = decode_entry(data, row.position - start, chain_crc)
            _check_row(entry, row)
        except CorruptEntryError as error:
            path, byte = log.locate(row.position)
            raise DamagedError(path, byte, str(error)) from error
        entries.append(entry)
        chain_crc = entry.chain_crc


def _check_row(entry: Entry, row: Row) -> None:
    found = (entry.kind, entry.position, len(entry.data), entry.index, entry.term)
    if found != row:
        raise CorruptEntryError(
            "entry differs from its row in the entry index", expected=tuple(row), found=found
        )
