"""The one reader of the log: its bytes, the whole entries among them, and holes.

A *hole* is a range of the log in which no whole entry was found where one should stand. The reader
says where it begins, where the next entry may begin at the earliest, and why. What that means is
the caller's to say: a torn tail, damage that a peer can repair, or a finding.

Nothing else reads segments, but for zeroing ahead, the repair of bytes, and copies for a snapshot.
Where the disk cannot read all that is asked for, the reader tries again block by block, and gives
what comes before the first block that is lost. No read error leaves it as an ``OSError``.

A reader may be used by many threads, unless it was given buffers.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from store.errors import CorruptEntryError, UnreadableError
from store.io.filesystem import Bytes, ReadableFile, ReadableFileSystem
from store.io.unreadable_blocks import read_until_unreadable
from store.log.entry import (
    HEADER,
    HEADER_SIZE,
    PADDING,
    PADDING_MAGIC,
    PADDING_SIZE,
    Entry,
    decode_entry,
)
from store.log.layout import next_position, segment_name, segment_start

WINDOW_SIZE = 4 << 20
"""Bytes that are read at once where all of the log is read."""

NO_LIMIT = sys.maxsize
_NO_BYTES = memoryview(b"")
_OF_ANOTHER_PLACE = frozenset({"index", "term", "size", "position"})


class HoleReason(Enum):
    """Why no whole entry was found. The first that applies."""

    MISSING = "the segment file is missing"
    EIO = "cannot be read"
    SHORT = "the segment file is cut short"
    ZEROS = "zeros where a header should be"
    MISPLACED = "an entry of another place"
    CHAIN = "an entry that does not continue the chain"
    CRC = "bytes that are no entry and no padding"


class Hole(NamedTuple):
    """Positions ``position`` to ``end`` (exclusive), within one segment, without a whole entry.

    ``end`` is where the entry ends by its own header, if that may be right; else the segment's end.
    ``error`` says what was expected, and what was found.
    """

    position: int
    end: int
    reason: HoleReason
    error: CorruptEntryError

    def __str__(self) -> str:
        told = self.reason in {HoleReason.MISSING, HoleReason.EIO, HoleReason.SHORT}
        return self.reason.value if told else str(self.error)


class Piece(NamedTuple):
    """Bytes of one segment. ``missing`` says why there are fewer than were asked for."""

    data: Bytes
    missing: HoleReason | None


class Window(NamedTuple):
    """Whole entries that follow each other from ``position`` on, and the hole behind them, if any.

    ``data`` holds their bytes, and those of the padding if that is what comes behind them. It may
    be a reader's buffer, and is valid until the next window then.
    """

    position: int
    data: memoryview
    entries: list[Entry]
    hole: Hole | None


@dataclass(slots=True)
class Cursor:
    """Where the log goes on: the number and position of the next entry, and what is known of the
    one before.

    ``end`` is where that one ended, ``chain_crc`` its chain CRC; ``None`` if it is not known.
    """

    index: int
    position: int
    chain_crc: int | None = None
    term: int = -1
    end: int | None = None


class Segments(Protocol):
    """The files of a log."""

    @property
    def segment_size(self) -> int: ...

    def opened(self, start: int) -> ReadableFile | None:
        """The file of the segment that begins at ``start``; ``None`` if there is none."""


class Buffers(Protocol):
    """Memory for windows."""

    def window(self, size: int, offset: int) -> memoryview:
        """``size`` bytes for what begins at ``offset`` of a file; given again later."""


class SegmentFiles:
    """The segments in a directory that nobody writes. One file is open at a time."""

    def __init__(self, fs: ReadableFileSystem, directory: str, segment_size: int) -> None:
        """``directory``: that of the replica."""
        self._fs = fs
        self._directory = f"{directory}/commitlog"
        self._file: ReadableFile | None = None
        self._start = -1
        self.segment_size = segment_size

    def opened(self, start: int) -> ReadableFile | None:
        """See :class:`Segments`."""
        if self._file is None or self._start != start:
            self.close()
            try:
                self._file = self._fs.open(self.locate(start)[0], writable=False)
            except FileNotFoundError:
                return None
            self._start = start
        return self._file

    def locate(self, position: int) -> tuple[str, int]:
        """The file that holds ``position``, and the byte in that file."""
        start = segment_start(position, self.segment_size)
        return f"{self._directory}/{segment_name(start)}", position - start

    def close(self) -> None:
        """Closes the file that is open. The next use opens one again."""
        file, self._file = self._file, None
        if file is not None:
            file.close()


class LogReader:
    """See the module."""

    def __init__(self, segments: Segments, buffers: Buffers | None = None) -> None:
        """``buffers``: windows are read into them; else each is read into memory of its own."""
        self._segments = segments
        self._buffers = buffers

    def read(self, position: int, size: int) -> Piece:
        """Up to ``size`` bytes as they lie there; no more than the segment of ``position`` has.

        Raises :class:`~store.errors.UnreadableError` if reading fails for a reason that tells
        nothing of the bytes, as do ``read_into``, ``window`` and ``entry_at``.
        """
        start = segment_start(position, self._segments.segment_size)
        file = self._opened(start)
        if file is None:
            return Piece(b"", HoleReason.MISSING)
        offset = position - start
        return read_segment(file, min(size, self._segments.segment_size - offset), offset)

    def read_into(self, buffer: memoryview, position: int) -> Piece:
        """As :meth:`read`, into memory of the caller's, which must not exceed the segment."""
        start = segment_start(position, self._segments.segment_size)
        file = self._opened(start)
        if file is None:
            return Piece(_NO_BYTES, HoleReason.MISSING)
        try:
            count = file.pread_into(buffer, position - start)
        except OSError:
            data, missing = self.read(position, len(buffer))
            count = len(data)
            buffer[:count] = data
            return Piece(buffer[:count], missing)
        return Piece(buffer[:count], HoleReason.SHORT if count < len(buffer) else None)

    def window(
        self, cursor: Cursor, *, last_index: int = NO_LIMIT, size: int = WINDOW_SIZE
    ) -> Window:
        """The next whole entries, up to ``last_index``: at least one, unless the segment is closed
        by its padding there, or a hole begins. ``cursor`` moves behind them.

        About ``size`` bytes are read, and all of one entry if that is larger.
        """
        position, segment_size = cursor.position, self._segments.segment_size
        stop = segment_start(position, segment_size) + segment_size
        wanted = size
        while True:
            piece = self._read_window(position, min(wanted, stop - position))
            view = memoryview(piece.data)
            more = piece.missing is None and position + len(view) < stop
            entries: list[Entry] = []
            hole = None
            try:
                needed = take_entries(view, cursor, segment_size, last_index, entries, more=more)
            except CorruptEntryError as error:
                rest = view[cursor.position - position :]
                hole = _hole(rest, piece, cursor.position, stop, error)
            else:
                if needed and not entries:
                    wanted = needed
                    continue
            end = entries[-1].end if entries else position
            if hole is None and cursor.position == stop:
                end += PADDING_SIZE
            return Window(position, view[: end - position], entries, hole)

    def entry_at(self, position: int, chain_crc: int | None = None) -> Entry | Hole:
        """The entry that stands at ``position``, whatever its number and place should be.

        It continues ``chain_crc`` where that is given.
        """
        segment_size = self._segments.segment_size
        stop = segment_start(position, segment_size) + segment_size
        piece = self.read(position, HEADER_SIZE)
        if piece.missing is None and len(piece.data) >= PADDING_SIZE:
            size = PADDING.unpack_from(piece.data)[1]
            if HEADER_SIZE <= size <= stop - position:
                piece = self.read(position, size)
        try:
            return decode_entry(piece.data, 0, chain_crc)
        except CorruptEntryError as error:
            return _hole(memoryview(piece.data), piece, position, stop, error)

    def _opened(self, start: int) -> ReadableFile | None:
        try:
            return self._segments.opened(start)
        except OSError as error:
            path = error.filename or segment_name(start)
            raise UnreadableError(str(path), 0, f"cannot be opened: {error}") from error

    def _read_window(self, position: int, size: int) -> Piece:
        if self._buffers is None:
            return self.read(position, size)
        offset = position % self._segments.segment_size
        return self.read_into(self._buffers.window(size, offset), position)


def read_segment(file: ReadableFile, size: int, offset: int) -> Piece:
    """As :meth:`LogReader.read`, from the open file of a segment."""
    try:
        data, unreadable = read_until_unreadable(file, size, offset)
    except OSError as error:
        raise UnreadableError(file.path, offset, f"cannot be read: {error}") from error
    if unreadable is not None:
        return Piece(data, HoleReason.EIO)
    return Piece(data, HoleReason.SHORT if len(data) < size else None)


def take_entries(
    view: memoryview,
    cursor: Cursor,
    segment_size: int,
    last_index: int,
    entries: list[Entry],
    *,
    more: bool = False,
) -> int:
    """Decodes the entries in ``view``, which begins at the cursor, and moves it behind them.

    ``more`` says that the file goes on behind the view. Returns how many bytes the next entry needs
    that goes on there; 0 if the view ends with the last entry, or with the padding. Raises
    :class:`~store.errors.CorruptEntryError` if no whole entry stands at the cursor.
    """
    index, position, chain, term = cursor.index, cursor.position, cursor.chain_crc, cursor.term
    end = cursor.end
    begin = position
    stop = segment_start(position, segment_size) + segment_size
    try:
        while index <= last_index:
            entry = decode_entry(view, position - begin, chain)
            if (
                entry.index != index
                or entry.position != position
                or entry.term < term
                or position + len(entry.data) + PADDING_SIZE > stop
                or end not in (None, position)
            ):
                _check_place(entry, index, position, term, end, segment_size)
            end = position = position + len(entry.data)
            index += 1
            chain = entry.chain_crc
            term = entry.term
            entries.append(entry)
    except CorruptEntryError:
        needed = _no_entry(view, position - begin, stop - position, more=more)
        if needed < 0:
            raise
        if not needed:
            position = stop
        return needed
    finally:
        cursor.index, cursor.position, cursor.chain_crc = index, position, chain
        cursor.term, cursor.end = term, end
    return 0


def _no_entry(view: memoryview, at: int, remaining: int, *, more: bool) -> int:
    """What stands at ``at`` of the view, if it is not damage: 0 for padding that fills the
    ``remaining`` bytes of the segment; for an entry that goes on behind the view, the bytes that it
    needs. -1 if it is damage.

    Raises :class:`~store.errors.CorruptEntryError` for other padding.
    """
    rest = len(view) - at
    if rest >= PADDING_SIZE:
        size: int
        magic, size = PADDING.unpack_from(view, at)
        if magic == PADDING_MAGIC:
            if size != remaining:
                raise CorruptEntryError("padding", expected=remaining, found=size)
            return 0
        if more and rest < size <= remaining - PADDING_SIZE:
            # No memory is taken for a size that the header does not state twice.
            length = view[at + 44 : at + HEADER_SIZE]
            if len(length) < 4 or int.from_bytes(length, "big") + HEADER_SIZE == size:
                return size
    return HEADER_SIZE if more and rest < HEADER_SIZE else -1


def _check_place(  # noqa: PLR0917 - where an entry should stand, and the one before it ended
    entry: Entry, index: int, position: int, term: int, end: int | None, segment_size: int
) -> None:
    """Raises :class:`~store.errors.CorruptEntryError` unless the entry belongs where it stands."""
    if entry.index != index:
        raise CorruptEntryError("index", expected=index, found=entry.index)
    if entry.term < term:
        raise CorruptEntryError("term", expected=f"at least {term}", found=entry.term)
    most = segment_size - position % segment_size - PADDING_SIZE
    if entry.size > most:
        raise CorruptEntryError("size", expected=f"at most {most}", found=entry.size)
    expected = position if end is None else next_position(end, entry.size, segment_size)
    if not entry.position == position == expected:
        found = f"{entry.position} at {position}"
        raise CorruptEntryError("position", expected=expected, found=found)


def _hole(
    rest: memoryview, piece: Piece, position: int, stop: int, error: CorruptEntryError
) -> Hole:
    """The hole at ``position``, of which ``rest`` was read. ``stop``: where its segment ends."""
    magic, size = PADDING.unpack_from(rest) if len(rest) >= PADDING_SIZE else (0, 0)
    end = position + size
    if magic == PADDING_MAGIC or not HEADER_SIZE <= size <= stop - PADDING_SIZE - position:
        end = stop
    if piece.missing is HoleReason.MISSING:
        missing = CorruptEntryError("segment", expected="a file", found="none")
        return Hole(position, end, HoleReason.MISSING, missing)
    if piece.missing is not None and magic != PADDING_MAGIC and len(rest) < max(size, HEADER_SIZE):
        return Hole(position, end, piece.missing, error)
    if not any(rest[:HEADER_SIZE]):
        return Hole(position, end, HoleReason.ZEROS, error)
    if error.reason in _OF_ANOTHER_PLACE:
        return Hole(position, end, HoleReason.MISPLACED, error)
    if error.reason != "chain CRC":
        return Hole(position, end, HoleReason.CRC, error)
    stated = HEADER.unpack_from(rest)[4]
    reason = HoleReason.CHAIN if stated == position else HoleReason.MISPLACED
    return Hole(position, end, reason, error)
