"""One entry of the replicated log: its bytes, and the chain that ties it to all entries before it.

The layout is DLedger's (``DLedgerEntryCoder``), 48 bytes of header, big-endian, and a body::

    byte  type  field
       0  i32   magic: 1 data, 2 no-op, 3 configuration change
       4  i32   size: 48 + length of the body
       8  i64   index: number of the entry; the first entry is 0
      16  i64   term in which a leader made it
      24  i64   pos: byte of this header in the commit log
      32  i32   channel: always 0
      36  u32   chainCrc
      40  u32   bodyCrc: CRC32C of the body
      44  i32   bodyLength
      48        body

DLedger reserves the two checksums and leaves them 0. Here they are used::

    chainCrc = CRC32C( chainCrc of the entry before, as u32
                       || magic, size, index, term, pos, channel        (bytes 0 to 36)
                       || bodyCrc, bodyLength )                         (bytes 40 to 48)

and the chain before index 0 is 0. Two logs with the same chain CRC at the same index are the same
log up to there, so a replica that diverged is found at the next append.

If the next entry does not fit into a segment, the rest of the segment begins with padding: i32 -1,
then i32 the number of bytes from the start of the padding to the end of the segment.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum

from crc32c import crc32c

from store.errors import CorruptEntryError
from store.io.filesystem import Bytes

HEADER_SIZE = 48
PADDING_SIZE = 8
PADDING_MAGIC = -1
ENTRY_SIZE_MAX = 2**31 - 1

HEADER = struct.Struct(">iiqqqiIIi")
# The header as the chain covers it: first the chain before this entry, then the header without its
# own chain CRC.
CHAINED = struct.Struct(">IiiqqqiIi")
PADDING = struct.Struct(">ii")
_NO_HEADER = bytes(HEADER_SIZE)


class EntryKind(IntEnum):
    """What the body of an entry is; the number is the entry's magic."""

    DATA = 1
    NO_OP = 2
    CONFIGURATION = 3


# A dict look-up costs a tenth of the call ``EntryKind(magic)``, and it is done for each entry.
KINDS: dict[int, EntryKind] = {kind.value: kind for kind in EntryKind}


class Entry:
    """One entry with all its bytes. Immutable by convention; ``data`` may share a larger buffer."""

    __slots__ = ("chain_crc", "data", "end", "index", "kind", "position", "size", "term")

    def __init__(  # noqa: PLR0917 - the fields of the header, filled by position in the hot path
        self,
        kind: EntryKind,
        index: int,
        term: int,
        position: int,
        chain_crc: int,
        data: bytes | memoryview,
    ) -> None:
        self.kind = kind
        self.index = index
        self.term = term
        self.position = position
        self.chain_crc = chain_crc
        self.data = data
        self.size = len(data)
        """Bytes of the whole entry, header included."""
        self.end = position + self.size
        """The position just behind the entry."""

    @property
    def body(self) -> memoryview:
        return memoryview(self.data)[HEADER_SIZE:]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Entry) and self.data == other.data

    def __hash__(self) -> int:
        return hash((self.index, self.chain_crc))

    def __repr__(self) -> str:
        return (
            f"Entry({self.kind.name}, index={self.index}, term={self.term}, "
            f"position={self.position}, size={len(self.data)}, chain={self.chain_crc:08x})"
        )


def chain_crc(  # noqa: PLR0917 - the fields of the header, filled by position in the hot path
    previous_chain_crc: int,
    magic: int,
    size: int,
    index: int,
    term: int,
    position: int,
    body_crc: int,
) -> int:
    """The chain CRC of an entry of channel 0, from the chain before it and its other fields."""
    chained = CHAINED.pack(
        previous_chain_crc, magic, size, index, term, position, 0, body_crc, size - HEADER_SIZE
    )
    return crc32c(chained)


def build_entry(  # noqa: PLR0917 - the fields of the header, in their order
    kind: EntryKind,
    index: int,
    term: int,
    position: int,
    previous_chain_crc: int,
    body_parts: Sequence[Bytes],
) -> Entry:
    """Makes the entry whose body is the concatenation of ``body_parts``, copying them once.

    Raises :class:`ValueError` if the entry would not fit the i32 of its size.
    """
    size = HEADER_SIZE + sum(map(len, body_parts))
    if size > ENTRY_SIZE_MAX:
        raise ValueError(f"an entry of {size} bytes exceeds {ENTRY_SIZE_MAX}")
    data = bytearray().join((_NO_HEADER, *body_parts))
    whole = memoryview(data)
    body_crc = crc32c(whole[HEADER_SIZE:])
    chain = chain_crc(previous_chain_crc, kind, size, index, term, position, body_crc)
    HEADER.pack_into(
        data, 0, kind, size, index, term, position, 0, chain, body_crc, size - HEADER_SIZE
    )
    return Entry(kind, index, term, position, chain, whole.toreadonly())


def decode_entry(buffer: Bytes, offset: int = 0, previous_chain_crc: int | None = None) -> Entry:
    """Decodes the entry that starts at ``offset``; its ``data`` shares ``buffer``, uncopied.

    Checks what the entry alone can prove: magic, size, sign of the numbers, channel, body length
    and body CRC. Only the chain proves index, term and position. It is checked if
    ``previous_chain_crc`` is given. Raises :class:`~store.errors.CorruptEntryError`.
    """
    available = len(buffer) - offset
    if available < HEADER_SIZE:
        raise _short_error("header length", HEADER_SIZE, available)
    magic, size, index, term, position, channel, chain, body_crc, body_length = HEADER.unpack_from(
        buffer, offset
    )
    kind = KINDS.get(magic)
    if kind is None:
        raise CorruptEntryError("magic", expected="1, 2 or 3", found=magic)
    if size < HEADER_SIZE:
        raise CorruptEntryError("size", expected=f"at least {HEADER_SIZE}", found=size)
    if size > available:
        raise _short_error("length", size, available)
    if body_length != size - HEADER_SIZE:
        raise CorruptEntryError("body length", expected=size - HEADER_SIZE, found=body_length)
    if channel != 0 or index < 0 or term < 0 or position < 0:
        raise CorruptEntryError(
            "channel, index, term and position",
            expected="0 and none below 0",
            found=(channel, index, term, position),
        )
    data = memoryview(buffer)[offset : offset + size]
    found_crc = crc32c(data[HEADER_SIZE:])
    if found_crc != body_crc:
        raise CorruptEntryError("body CRC", expected=f"{body_crc:08x}", found=f"{found_crc:08x}")
    if previous_chain_crc is not None:
        found_chain = chain_crc(previous_chain_crc, magic, size, index, term, position, body_crc)
        if found_chain != chain:
            raise _chain_error(found_chain, chain)
    return Entry(kind, index, term, position, chain, data)


def check_chain(entry: Entry, previous_chain_crc: int) -> None:
    """Raises :class:`~store.errors.CorruptEntryError` unless ``entry`` continues that chain.

    The body CRC is taken as the header states it: :func:`decode_entry` has compared the body.
    """
    body_crc = int.from_bytes(entry.data[40:44], "big")
    expected = chain_crc(
        previous_chain_crc,
        entry.kind,
        len(entry.data),
        entry.index,
        entry.term,
        entry.position,
        body_crc,
    )
    if entry.chain_crc != expected:
        raise _chain_error(expected, entry.chain_crc)


def decode_entries(data: Bytes) -> list[Entry]:
    """Decodes entries that lie back to back, each following in index and chain the one before.

    The first is decoded alone; a caller that knows the chain before it calls :func:`check_chain`.
    Positions jump forward from the end of one segment to the start of the next. Raises
    :class:`~store.errors.CorruptEntryError`.
    """
    view = memoryview(data)
    entries: list[Entry] = []
    offset = 0
    chain: int | None = None
    while offset < len(view):
        entry = decode_entry(view, offset, chain)
        if entries and entry.index != entries[-1].index + 1:
            raise CorruptEntryError(
                "index does not follow", expected=entries[-1].index + 1, found=entry.index
            )
        entries.append(entry)
        chain = entry.chain_crc
        offset += len(entry.data)
    return entries


def padding(remaining: int) -> bytes:
    """The padding that closes a segment of which ``remaining`` bytes (8 or more) are unused."""
    return PADDING.pack(PADDING_MAGIC, remaining)


def _short_error(field: str, expected: int, available: int) -> CorruptEntryError:
    return CorruptEntryError(field, expected=expected, found=f"{available}, cut short")


def _chain_error(expected: int, found: int) -> CorruptEntryError:
    return CorruptEntryError("chain CRC", expected=f"{expected:08x}", found=f"{found:08x}")
