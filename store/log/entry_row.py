"""A row of the entry index: where one log entry lies.

32 bytes, as in DLedger, big-endian::

    byte  type  field
       0  i32   magic of the entry (its kind)
       4  i64   position of the entry
      12  i32   size of the entry, header included
      16  i64   index
      24  i64   term
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from store.log.entry import HEADER_SIZE, KINDS, PADDING_SIZE, Entry
from store.log.layout import next_position

ROW = struct.Struct(">iqiqq")
ROW_SIZE = ROW.size


class EntryIndexRow(NamedTuple):
    """One row. The entry's bytes are ``position`` to ``position + size`` of the commit log."""

    magic: int
    position: int
    size: int
    entry_index: int
    term: int

    @staticmethod
    def of(entry: Entry) -> EntryIndexRow:
        """The row of an entry."""
        return EntryIndexRow(entry.kind, entry.position, entry.size, entry.index, entry.term)

    @property
    def end(self) -> int:
        return self.position + self.size


def follows(row: EntryIndexRow, end: int, term: int, segment_size: int) -> bool:
    """Whether the entry of a row may follow one that ends at ``end`` and has this term.

    ``end`` is -1 if it is not known.
    """
    magic, position, size, _index, own_term = row
    return (
        magic in KINDS
        and HEADER_SIZE <= size <= segment_size - PADDING_SIZE
        and own_term >= term
        and (position >= 0 if end < 0 else position == next_position(end, size, segment_size))
    )
