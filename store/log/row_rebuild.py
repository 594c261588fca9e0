"""Rows of the entry index from the headers of the entries.

The chain CRC of a header covers the header and ties it to the one before. So headers prove where
entries lie, also entries whose bodies are damaged. A header that is damaged itself is passed over
if its row on disk leads from the entry before to the one behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from store.log.commit_log import CommitLog
from store.log.entry import HEADER, HEADER_SIZE, PADDING_SIZE, chain_crc
from store.log.entry_row import EntryIndexRow, follows
from store.log.layout import segment_start


class Before(NamedTuple):
    """What is known of the entry before some rows.

    ``chain_crc`` is ``None`` if that entry has expired, or cannot be read.
    """

    end: int
    chain_crc: int | None
    term: int = 0
    expired: bool = False


class _Header(NamedTuple):
    row: EntryIndexRow
    chain_crc: int
    body_crc: int


def rows_from_headers(
    log: CommitLog,
    before: Before,
    first: int,
    on_disk: Sequence[EntryIndexRow | None],
    *,
    last: int,
) -> list[EntryIndexRow]:
    """The rows of the entries from ``first`` on, as many as ``on_disk`` has.

    ``on_disk``: what stands there now, ``None`` where it cannot be read. ``last``: the last entry
    of the log. If header and row of an entry are both damaged, its row is :func:`unknown`, and
    those behind it may be.
    """
    rows: list[EntryIndexRow] = []
    end, chain, term = before.end, before.chain_crc, before.term
    lost = chain is None and not before.expired
    for index, found_row in enumerate(on_disk, first):
        stood = found_row if found_row is not None and found_row.entry_index == index else None
        header = _next_header(log, index, stood, end, chain, term)
        if header is None and lost and stood is not None and stood.position >= end:
            found = _header_at(log, stood.position, index)
            header = found if found is not None and found.row == stood else None
        if header is not None:
            row, chain = header.row, header.chain_crc
        elif index == first and before.expired:
            row, chain = _first_row(log, stood, end, index)
        elif stood is not None and _passes(log, stood, end, term, is_last=index == last):
            row, chain = stood, stated_chain_crc(log, stood.position)
        else:
            row, chain = unknown(index, end, term), None
            claimed = _end_by_own_size(log, index, end)
            if claimed is not None:
                end, chain = claimed
        rows.append(row)
        lost = chain is None
        end, term = max(end, row.end), row.term
    return rows


def _end_by_own_size(log: CommitLog, index: int, end: int) -> tuple[int, int] | None:
    """Where an entry with a damaged header ends by that header, and its chain CRC, if the entry
    behind it agrees."""
    for position in _places(end, log.segment_size):
        data = log.reader.read(position, HEADER_SIZE).data
        if len(data) < HEADER_SIZE:
            continue
        _magic, size, _index, _term, _position, _channel, chain, *_ = HEADER.unpack(data)
        if not HEADER_SIZE <= size <= log.segment_size - PADDING_SIZE:
            continue
        for place in _places(position + size, log.segment_size):
            behind = _header_at(log, place, index + 1)
            if behind is not None and _continues(behind, chain):
                return position + size, chain
    return None


def unknown(index: int, position: int, term: int) -> EntryIndexRow:
    """A row without size: all that is known is that its entry lies at ``position`` or behind."""
    return EntryIndexRow(0, position, 0, index, term)


def _next_header(  # noqa: PLR0917 - an entry, and what is known of the one before
    log: CommitLog,
    index: int,
    stood: EntryIndexRow | None,
    end: int,
    chain: int | None,
    term: int,
) -> _Header | None:
    """The header of an entry, if the chain or its row on disk proves it."""
    for position in _places(end, log.segment_size):
        header = _header_at(log, position, index)
        if (
            header is not None
            and follows(header.row, end, term, log.segment_size)
            and (header.row == stood or _continues(header, chain))
        ):
            return header
    return None


def _first_row(
    log: CommitLog, stood: EntryIndexRow | None, position: int, index: int
) -> tuple[EntryIndexRow, int | None]:
    """The row of the first entry retained, and its chain CRC. No chain covers its kind and term: if
    the row on disk says otherwise, a peer must decide."""
    header = _header_at(log, position, index)
    if header is None:
        return stood or unknown(index, position, 0), None
    disputed = stood is not None and stood[1:4] == header.row[1:4]
    return stood if stood is not None and disputed else header.row, header.chain_crc


def _passes(log: CommitLog, row: EntryIndexRow, end: int, term: int, *, is_last: bool) -> bool:
    """Whether a row leads over a damaged header, from the entry before to the one behind."""
    if not follows(row, end, term, log.segment_size):
        return False
    behind = (_header_at(log, at, row.entry_index + 1) for at in _places(row.end, log.segment_size))
    return is_last or any(behind)


def _places(end: int, segment_size: int) -> Sequence[int]:
    """Where an entry may lie if the one before ends at ``end``."""
    start = segment_start(end, segment_size)
    return (end,) if start == end else (end, start + segment_size)


def _continues(header: _Header, chain: int | None) -> bool:
    if chain is None:
        return False
    magic, position, size, index, term = header.row
    found = chain_crc(chain, magic, size, index, term, position, header.body_crc)
    return found == header.chain_crc


def _header_at(log: CommitLog, position: int, index: int) -> _Header | None:
    """The header at ``position``, if it may be that of the entry ``index``."""
    data = log.reader.read(position, HEADER_SIZE).data
    if len(data) < HEADER_SIZE:
        return None
    magic, size, stated, term, at, channel, chain, body_crc, length = HEADER.unpack(data)
    if (stated, at, channel, length) != (index, position, 0, size - HEADER_SIZE):
        return None
    return _Header(EntryIndexRow(magic, position, size, index, term), chain, body_crc)


def stated_chain_crc(log: CommitLog, position: int) -> int | None:
    """The chain CRC in the header at ``position``; ``None`` if it cannot be read."""
    data = log.reader.read(position, HEADER_SIZE).data
    return HEADER.unpack(data)[6] if len(data) == HEADER_SIZE else None
