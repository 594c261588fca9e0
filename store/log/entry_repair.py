"""Checks the entries of a log, and repairs single ones.

An entry is checked against its own CRCs, its row in the entry index and the entry before it. A
peer's entry is written only if it fits exactly where the lost one lay: the chain CRC must agree,
and position and size must leave no byte over. The padding that closes a segment is written again.
"""

from __future__ import annotations

from typing import NamedTuple

from store.errors import CorruptEntryError, DamagedError, EntryTooLargeError, StoreError
from store.io.filesystem import Bytes, FileSystem
from store.log.commit_log import CommitLog
from store.log.entry import PADDING_SIZE, Entry, check_chain, padding
from store.log.entry_index import EntryIndex
from store.log.entry_reader import read_chain_crc, read_entries
from store.log.entry_row import ROW, EntryIndexRow
from store.log.layout import next_position, segment_start
from store.log.log_reader import HoleReason
from store.log.repair_note import overwrite_noted, overwritten_end


class CheckedRange(NamedTuple):
    """The state of a piece of the log: how much was read, and what is damaged, by index."""

    next_index: int
    size: int
    entries: list[Entry]
    damage: dict[int, DamagedError]


def check_entries(
    log: CommitLog, index: EntryIndex, first_index: int, last_index: int, max_bytes: int
) -> CheckedRange:
    """Reads some entries from ``first_index`` on and tells which are damaged.

    Raises :class:`~store.errors.OutOfRangeError` if the log does not hold them.
    """
    index.forget_checked()
    try:
        entries = read_entries(log, index, first_index, last_index, max_bytes)
        _check_before(log, index, entries[0])
        _check_padding(log, index, entries, last_index)
    except DamagedError:
        return _check_each(log, index, first_index, last_index, max_bytes)
    size = sum(entry.size for entry in entries)
    return CheckedRange(entries[-1].index + 1, size, entries, {})


def _check_each(
    log: CommitLog, index: EntryIndex, first_index: int, last_index: int, max_bytes: int
) -> CheckedRange:
    entries: list[Entry] = []
    damage: dict[int, DamagedError] = {}
    size = 0
    place = first_index
    while place <= last_index and size < max_bytes:
        try:
            (entry,) = read_entries(log, index, place, place, 1)
            if place - 1 not in damage:
                try:
                    _check_before(log, index, entry)
                except DamagedError as error:
                    if place - 1 == index.first_index:
                        # It may also be the chain CRC of that entry, which nothing else proves.
                        damage[place - 1] = error
                        entries = [each for each in entries if each.index != place - 1]
                    raise
            _check_padding(log, index, [entry], last_index)
            entries.append(entry)
            size += entry.size
        except DamagedError as error:
            damage[place] = error
            size += ROW.size
        place += 1
    return CheckedRange(place, size, entries, damage)


def _check_before(log: CommitLog, index: EntryIndex, entry: Entry) -> None:
    if entry.index == index.first_index > 0:
        return  # the entries before it have expired
    try:
        row = _row_if_known(index, entry.index - 1) if entry.index else None
        if entry.index and row is None:
            return  # its header is damaged, so nothing says what the chain CRC before is
        check_chain(entry, 0 if row is None else read_chain_crc(log, index, row))
    except CorruptEntryError as error:
        path, byte = log.locate(entry.position)
        raise DamagedError(path, byte, str(error)) from error


def _check_padding(log: CommitLog, index: EntryIndex, entries: list[Entry], last: int) -> None:
    nexts = [entry.position for entry in entries[1:]]
    if entries[-1].index < last:
        behind = _row_if_known(index, entries[-1].index + 1)
        nexts += [] if behind is None else [behind.position]
    for entry, following in zip(entries, nexts, strict=False):
        end = segment_start(entry.position, log.segment_size) + log.segment_size
        if following != end:
            continue
        path, byte = log.locate(entry.end)
        rest, missing = log.read_piece(entry.end, log.segment_size)
        if rest[:PADDING_SIZE] != padding(end - entry.end):
            raise DamagedError(path, byte, "padding of the segment")
        if missing is HoleReason.EIO:
            raise DamagedError(path, byte + len(rest), "cannot be read, behind the padding")


def repair_entry(
    fs: FileSystem,
    directory: str,
    log: CommitLog,
    index: EntryIndex,
    entry: Entry,
    *,
    known_end: int,
) -> None:
    """Writes a peer's entry where the log has a damaged one; durable and read back on return.

    Everything below the position ``known_end`` is committed and was durable, also after a power
    failure: if something is lost there, that is noticed. Raises :class:`~store.errors.StoreError`
    if the entry does not fit, or cannot be written without losing more. Nothing is written then.
    """
    following = _check_fits(log, index, entry)
    start = segment_start(entry.position, log.segment_size)
    path, byte = log.locate(entry.position)
    pieces: list[tuple[int, Bytes]] = [(entry.position, entry.data)]
    if following is not None and following.position == start + log.segment_size:
        pieces.append((entry.end, padding(following.position - entry.end)))
    if overwritten_end(fs, directory, log.segment_size, pieces) > known_end:
        raise StoreError(
            f"entry {entry.index} shares a block that cannot be read with what is not known to be "
            "committed: it is repaired when the log goes on, or when it is opened the next time"
        )
    overwrite_noted(fs, directory, log.segment_size, pieces, log.opened(start))
    row = EntryIndexRow.of(entry)
    if index.unchecked_row(entry.index) != row:
        index.rewrite_row(entry.index, ROW.pack(*row))
    index.forget_rebuilt()
    (found,) = read_entries(log, index, entry.index, entry.index, 1)
    if found.data != entry.data:
        raise DamagedError(path, byte, "the disk does not give back what was written")


def repair_padding(
    fs: FileSystem, directory: str, log: CommitLog, index: EntryIndex, place: int
) -> bool:
    """Repairs the padding behind an entry; durable and read back on return. Returns whether it was
    damaged. Bytes behind a padding mean nothing, but a copy of the file reads them, too.
    """
    try:
        (entry,) = read_entries(log, index, place, place, 1)
        following = index.row(place + 1)
        start = segment_start(entry.position, log.segment_size)
        room = start + log.segment_size - entry.end
        if following.position != entry.end + room:
            return False
        rest, missing = log.read_piece(entry.end, log.segment_size)
    except StoreError:
        return False
    head = padding(room)
    if rest[:PADDING_SIZE] == head and missing is not HoleReason.EIO:
        return False
    data = head + bytes(room - len(head)) if missing is HoleReason.EIO else head
    overwrite_noted(fs, directory, log.segment_size, [(entry.end, data)], log.opened(start))
    rest, missing = log.read_piece(entry.end, log.segment_size)
    return rest[:PADDING_SIZE] == head and missing is not HoleReason.EIO


def _check_fits(log: CommitLog, index: EntryIndex, entry: Entry) -> EntryIndexRow | None:
    """The row of the entry behind, if that is whole and where the log goes on."""
    position = log.first_position
    if entry.index > index.first_index:
        previous = index.row(entry.index - 1)
        position = next_position(previous.end, entry.size, log.segment_size)
        try:
            check_chain(entry, read_chain_crc(log, index, previous))
        except CorruptEntryError as error:
            raise StoreError(f"entry {entry.index} of a peer does not fit: {error}") from error
    if entry.position != position:
        raise StoreError(
            f"entry {entry.index} of a peer lies at {entry.position}, ours at {position}"
        )
    if entry.index + 1 >= index.end_index:
        fits, following = entry.end == log.end, None
    else:
        following = _row_if_known(index, entry.index + 1)
        fits = following is None or _lies_behind(following, entry, log.segment_size)
    if not fits:
        raise StoreError(f"entry {entry.index} of a peer has another size than ours")
    return following


def _lies_behind(following: EntryIndexRow, entry: Entry, segment_size: int) -> bool:
    try:
        return following.position == next_position(entry.end, following.size, segment_size)
    except EntryTooLargeError:
        return False


def _row_if_known(index: EntryIndex, place: int) -> EntryIndexRow | None:
    try:
        return index.row(place)
    except DamagedError:
        return None
