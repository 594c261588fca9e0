"""Checksums for the rows of a ConsumeQueue, by blocks: a file beside each file of rows.

``consumequeue/<topic>/<queue>/<20 digits>.crc``: one *seal* of 16 bytes for each full block of
1,024 rows of the file of that name, in order. Big-endian::

    byte  type  field
       0  i64   position of the record of the block's first row
       8  u32   CRC32C of the rows
      12  u32   CRC32C of the bytes 0 to 12

The last block of a full file may be shorter. A block without a seal, or with a seal of zeros, is
*unsealed*. A seal is computed from rows as they come from the log, never from rows that were read
from the disk. The rows behind the last full block are the *tail*; see
:mod:`store.index.queue_tails`.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from crc32c import crc32c

from store.io.filesystem import Bytes

ROW_SIZE = 20
BLOCK_ROWS = 1024
SEAL_SUFFIX = ".crc"
_FIELDS = struct.Struct(">qI")
SEAL_SIZE = _FIELDS.size + 4
_NO_SEAL = bytes(SEAL_SIZE)


class Seal(NamedTuple):
    """The seal of one block: the position of its first record, and the CRC32C of its rows."""

    position: int
    crc: int

    def pack(self) -> bytes:
        """The 16 bytes."""
        fields = _FIELDS.pack(*self)
        return fields + crc32c(fields).to_bytes(4, "big")


def unpack_seal(data: Bytes) -> Seal | None:
    """The seal; ``None`` for zeros or too few bytes. Raises :class:`ValueError` for other bytes."""
    if len(data) < SEAL_SIZE or data == _NO_SEAL:
        return None
    if crc32c(data[: _FIELDS.size]) != int.from_bytes(data[_FIELDS.size : SEAL_SIZE], "big"):
        raise ValueError("CRC of the seal")
    return Seal(*_FIELDS.unpack_from(data))


def block_of(offset: int, rows_per_file: int) -> tuple[int, int]:
    """The block of ``offset``: its first offset, and the first offset behind it."""
    in_file = offset % rows_per_file
    begin = offset - in_file % BLOCK_ROWS
    return begin, min(begin + BLOCK_ROWS, offset - in_file + rows_per_file)


def seal_byte(begin: int, rows_per_file: int) -> int:
    """The byte of its file at which the seal of the block from offset ``begin`` lies."""
    return begin % rows_per_file // BLOCK_ROWS * SEAL_SIZE


UNKNOWN = -1


class Tail(NamedTuple):
    """The rows of a queue from the beginning of a block to before offset ``end``.

    ``position`` is that of the first of their records, and ``crc`` is the CRC32C of the rows. Both
    are ``UNKNOWN`` if the rows are unsealed, and mean nothing without rows.
    """

    end: int
    position: int = UNKNOWN
    crc: int = 0


def unsealed(end: int, rows_per_file: int) -> Tail:
    """A tail that ends at ``end`` and whose rows, if it has any, are unsealed."""
    return Tail(end, UNKNOWN, 0 if block_of(end, rows_per_file)[0] == end else UNKNOWN)


def extend(tail: Tail, rows: Bytes, rows_per_file: int) -> tuple[Tail, list[tuple[int, Seal]]]:
    """The new tail after ``rows`` from the log, and the seals of the blocks that they complete.

    Each seal comes with the first offset of its block.
    """
    end, position, crc = tail
    seals: list[tuple[int, Seal]] = []
    at = 0
    while at < len(rows):
        begin, stop = block_of(end, rows_per_file)
        part = rows[at : at + (stop - end) * ROW_SIZE]
        at += len(part)
        if end == begin:
            position, crc = int.from_bytes(part[:8], "big", signed=True), 0
        if crc != UNKNOWN:
            crc = crc32c(part, crc)
        end += len(part) // ROW_SIZE
        if end == stop:
            if crc != UNKNOWN:
                seals.append((begin, Seal(position, crc)))
            position, crc = UNKNOWN, 0
    return Tail(end, position, crc), seals
