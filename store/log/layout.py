"""Where an entry lies in the commit log: leader and followers compute it in the same way.

The commit log is one line of bytes cut into segments of equal size. An entry lies within one
segment, and behind the last entry of a segment at least 8 bytes stay free for the padding that
closes it. The rule is strict, so replicas that agree on the entries agree on every position.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from store.errors import EntryTooLargeError, StoreError
from store.io.filesystem import Bytes
from store.log.entry import HEADER_SIZE, PADDING_SIZE, Entry, padding

# A segment must hold at least one entry with a little body, and its padding.
SEGMENT_SIZE_MIN = 2 * (HEADER_SIZE + PADDING_SIZE)
SEGMENT_SIZE_MAX = 1 << 30
NAME_DIGITS = 20


def next_position(end: int, size: int, segment_size: int) -> int:
    """The position of an entry of ``size`` bytes in a log whose last entry ends at ``end``.

    That is ``end`` if the entry and a padding still fit into the segment, else the start of the
    next segment. Raises :class:`~store.errors.EntryTooLargeError` if no segment holds it.
    """
    used = end % segment_size
    if used + size + PADDING_SIZE <= segment_size:
        return end
    if size + PADDING_SIZE > segment_size:
        raise EntryTooLargeError(size, entry_size_max(segment_size))
    return end - used + segment_size


def entry_size_max(segment_size: int) -> int:
    """Bytes of the largest entry, header included, that a segment can hold."""
    return segment_size - PADDING_SIZE


def segment_start(position: int, segment_size: int) -> int:
    """The first position of the segment that holds ``position``."""
    return position - position % segment_size


def segment_name(position: int) -> str:
    """The file name of the segment (or index file) that starts at ``position``: 20 digits."""
    return f"{position:020d}"


def parse_segment_name(name: str) -> int | None:
    """The start that a file name states, or ``None`` if it is not the name of a segment."""
    if len(name) != NAME_DIGITS or not (name.isascii() and name.isdigit()):
        return None
    return int(name)


def lay_out(entries: Iterable[Entry], end: int, segment_size: int) -> Sequence[tuple[int, Bytes]]:
    """What is to be written at which position so that entries follow a log which ends at ``end``:
    one piece for each segment, with the padding that closes it.

    Raises :class:`~store.errors.StoreError` if the position of an entry is not the next one.
    """
    parts: list[Bytes] = []
    pieces: list[tuple[int, list[Bytes]]] = [(end, parts)]
    for entry in entries:
        data = entry.data
        position = next_position(end, len(data), segment_size)
        if entry.position != position:
            raise StoreError(
                f"entry {entry.index} has position {entry.position}, "
                f"and the next one in this log is {position}"
            )
        if position != end:
            parts.append(padding(position - end))
            parts = []
            pieces.append((position, parts))
        parts.append(data)
        end = position + len(data)
    return [(at, piece[0] if len(piece) == 1 else b"".join(piece)) for at, piece in pieces]
