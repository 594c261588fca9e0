"""Rows of the entry index from the headers of the entries.

The chain CRC of a header covers the header and ties it to the one before. So headers prove where
entries lie, also entries whose bodies are damaged. Damaged headers are passed over if their rows on
disk lead from the entry before to the one behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from store.log.commit_log import CommitLog
from store.log.entry import HEADER, HEADER_SIZE, PADDING_SIZE, chain_crc
from store.log.entry_row import EntryIndexRow, follows
from store.log.layout import segment_start

Stood: TypeAlias = EntryIndexRow | None
"""What stands on disk in the place of a row; ``None`` if it cannot be read."""


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
    log: CommitLog, before: Before, first: int, on_disk: Sequence[Stood], *, last: int
) -> list[EntryIndexRow]:
    """The rows of the entries from ``first`` on, as many as ``on_disk`` has.

    ``last``: the last entry of the log. If header and row of an entry are both damaged, its row is
    :func:`unknown`, and those behind it may be.
    """
    stood = [
        row if row is not None and row.entry_index == index else None
        for index, row in enumerate(on_disk, first)
    ]
    rows: list[EntryIndexRow] = []
    end, chain, term = before.end, before.chain_crc, before.term
    passed = first
    """Rows on disk before this one lead to a header."""
    for place, index in enumerate(range(first, first + len(stood))):
        at_hand = stood[place]
        header = _next_header(log, index, at_hand, Before(end, chain, term))
        if header is None and chain is None and at_hand is not None and at_hand.position >= end:
            header = _confirmed(log, at_hand)
        if header is not None:
            row, chain = header.row, header.chain_crc
            term = row.term
        elif index == first and before.expired:
            row, chain, term = _first_row(log, at_hand, end, index)
        else:
            if index >= passed:
                passed = _leads_to(log, stood, place, first, Before(end, None, term), last)
            if at_hand is not None and index < passed:
                row, chain = at_hand, stated_chain_crc(log, at_hand.position)
            else:
                row, chain = unknown(index, end, term), None
                claimed = _end_by_own_size(log, index, end)
                if claimed is not None:
                    end, chain = claimed
        rows.append(row)
        end = max(end, row.end)
    return rows


def row_from_header(log: CommitLog, before: Before, index: int) -> EntryIndexRow | None:
    """The row of one entry, if the chain proves its header."""
    header = _next_header(log, index, None, before)
    return None if header is None else header.row


def unknown(index: int, position: int, term: int) -> EntryIndexRow:
    """A row without size: all that is known is that its entry lies at ``position`` or behind."""
    return EntryIndexRow(0, position, 0, index, term)


def stated_chain_crc(log: CommitLog, position: int) -> int | None:
    """The chain CRC in the header at ``position``; ``None`` if it cannot be read."""
    data = log.reader.read(position, HEADER_SIZE).data
    return HEADER.unpack(data)[6] if len(data) == HEADER_SIZE else None


def _next_header(log: CommitLog, index: int, stood: Stood, before: Before) -> _Header | None:
    """The header of an entry, if the chain or its row on disk proves it."""
    for position in _places(before.end, log.segment_size):
        header = _header_at(log, position, index)
        if (
            header is not None
            and follows(header.row, before.end, before.term, log.segment_size)
            and (header.row == stood or _continues(header, before.chain_crc))
        ):
            return header
    return None


def _confirmed(log: CommitLog, row: EntryIndexRow) -> _Header | None:
    """The header to which a row leads, if it says the same."""
    header = _header_at(log, row.position, row.entry_index)
    return header if header is not None and header.row == row else None


def _first_row(
    log: CommitLog, stood: Stood, position: int, index: int
) -> tuple[EntryIndexRow, int | None, int]:
    """The row of the first entry retained, its chain CRC, and the least term behind it. No chain
    covers its kind and term: if the row on disk says otherwise, a peer must decide."""
    fits = stood is not None and follows(stood, position, 0, log.segment_size)
    header = _header_at(log, position, index)
    if header is None or not follows(header.row, position, 0, log.segment_size):
        row = stood if stood is not None and fits else unknown(index, position, 0)
        return row, None, 0
    if stood is not None and fits and stood.size == header.row.size:
        return stood, header.chain_crc, min(stood.term, header.row.term)
    return header.row, header.chain_crc, 0


def _leads_to(  # noqa: PLR0917 - rows, where they begin, and what is known of the one before
    log: CommitLog, stood: Sequence[Stood], place: int, first: int, before: Before, last: int
) -> int:
    """The first entry behind ``place`` with a header, if rows on disk lead there; else that of
    ``place`` itself."""
    begin = first + place
    end, term = before.end, before.term
    for index, row in enumerate(stood[place:], begin):
        if row is None or not follows(row, end, term, log.segment_size):
            return begin
        end, term = row.end, row.term
        if index == last:
            return index + 1
        places = _places(end, log.segment_size)
        if any(_header_at(log, at, index + 1) is not None for at in places):
            return index + 1
    return begin


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
