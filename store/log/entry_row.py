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

ROW = struct.Struct(">iqiqq")
ROW_SIZE = ROW.size


class EntryIndexRow(NamedTuple):
    """One row. The entry's bytes are ``position`` to ``position + size`` of the commit log."""

    magic: int
    position: int
    size: int
    entry_index: int
    term: int

    @property
    def end(self) -> int:
        return self.position + self.size
