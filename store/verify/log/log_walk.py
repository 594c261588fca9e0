"""Reads the entries of a range. The check reads the log in no other way.

:class:`LogWalk` reads replicas with equal bytes. It compares them, and decodes the bytes of the
first one. It raises an error for anything that is wrong. Then :class:`DamagedLogWalk` reads one
replica alone. It makes findings of damage, and goes on behind it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from store.errors import CorruptEntryError, StoreError
from store.io.filesystem import ReadableFileSystem
from store.log.entry import HEADER_SIZE, Entry
from store.log.entry_row import ROW, ROW_SIZE, EntryIndexRow
from store.log.layout import segment_start
from store.log.log_reader import (
    NO_LIMIT,
    WINDOW_SIZE,
    Cursor,
    Hole,
    HoleReason,
    LogReader,
    SegmentFiles,
    Window,
)
from store.verify.files.read_buffers import Buffers
from store.verify.files.row_files import RowFiles, list_starts
from store.verify.findings import FindingKind, FindingLog
from store.verify.plan.ranges import Border
from store.verify.state.state_files import StateFiles

ROWS_TRIED = 1000
"""How many rows of the entry index are tried, to find the next entry behind damage."""
UNREADABLE = -1
LOST_MAX = 1 << 24
"""The most entries that one hole may span. A range has fewer, so a header that says more is wrong.
"""


class UnequalError(StoreError):
    """The replicas have different bytes, or one has too few."""


class LogWalk:
    """Reads the entries of a range, from ``border`` to ``last_index`` or the end of the log.

    ``directories``: replicas with equal bytes.
    """

    def __init__(
        self,
        fs: ReadableFileSystem,
        directories: Sequence[str],
        segment_size: int,
        *,
        border: Border,
        last_index: int | None,
        buffers: Buffers,
    ) -> None:
        self._files = [SegmentFiles(fs, each, segment_size) for each in directories]
        self._buffers = buffers
        self._reader = LogReader(self._files[0], buffers)
        self._cursor = Cursor(
            border.index, border.position, border.chain, border.term, end=border.position
        )
        self._stop_index = NO_LIMIT if last_index is None else last_index
        self.first_index = self.next_index = border.index
        self.end_position = border.position
        self.lost: list[tuple[int, int]] = []
        """Positions (first, end) that could not be read."""
        self.chains = array("q")
        """The chain CRC of each entry from ``first_index`` on; -1 for an unreadable one. If all
        entries up to the end are lost, they are left out. Only :class:`DamagedLogWalk` fills it."""
        self.positions = array("q")
        self.ends = array("q")
        """Position and end position of the entries of ``chains``; equal for an unreadable one."""

    @property
    def last_index(self) -> int:
        return self.next_index - 1

    def segment_path(self, position: int) -> tuple[str, int]:
        """The segment file of the first replica for a position of the log, and the byte in it."""
        return self._files[0].locate(position)

    def windows(self) -> Iterator[Window]:
        """All intact entries, in windows. A window is valid until the next one.

        Raises :class:`UnequalError` and :class:`~store.errors.CorruptEntryError`.
        """
        try:
            while self._cursor.index <= self._stop_index:
                window = self._reader.window(
                    self._cursor, last_index=self._stop_index, size=WINDOW_SIZE
                )
                for files in self._files[1:]:
                    self._compare(files, window)
                if window.entries:
                    self.next_index = window.entries[-1].index + 1
                    self.end_position = window.entries[-1].end
                    self._remember(window.entries)
                    yield window
                if window.hole is not None and not self._skip(window.hole):
                    break
        finally:
            for files in self._files:
                files.close()

    def _remember(self, entries: Sequence[Entry]) -> None:
        """Remembers entries, to compare them with other replicas. Equal replicas need no such
        comparison."""

    def _skip(self, hole: Hole) -> bool:
        """Moves the cursor behind a hole; ``False`` if the walk ends there."""
        raise hole.error

    def _compare(self, files: SegmentFiles, window: Window) -> None:
        """Raises :class:`UnequalError` unless a replica has the bytes of the window."""
        piece = self._buffers.piece
        octets = memoryview(piece.octets)
        reader = LogReader(files)
        size = len(window.data)
        for at in range(0, size, piece.size):
            wanted = min(piece.size, size - at)
            path, byte = files.locate(window.position + at)
            place = piece.place(byte)
            found = reader.read_into(octets[place : place + wanted], window.position + at)
            # ``startswith`` uses memcmp. Memoryviews are compared byte by byte.
            same = piece.octets.startswith(window.data[at : at + wanted], place)
            if found.missing is not None or not same:
                raise UnequalError(f"{path}: other bytes from byte {byte} on")


class DamagedLogWalk(LogWalk):
    """Reads the entries of one replica. Damage below its durable position becomes findings.

    ``directories``: all replicas of the group. Their entry indexes say where the next entry behind
    damage begins. The replica's own index may end before the damage. A border of a range is known
    from any replica, so without the others the findings would depend on the ranges.
    """

    def __init__(
        self,
        fs: ReadableFileSystem,
        directory: str,
        state: StateFiles,
        log: FindingLog,
        *,
        directories: Sequence[str],
        border: Border,
        last_index: int | None,
        buffers: Buffers,
    ) -> None:
        size = state.identity.segment_size
        super().__init__(
            fs, [directory], size, border=border, last_index=last_index, buffers=buffers
        )
        self._state = state
        self._log = log
        self._indexes = [RowFiles(fs, f"{each}/index", ROW_SIZE) for each in directories]
        self._segments = [
            start
            for start in list_starts(fs, f"{directory}/commitlog")
            if start % size == 0 and start + size > state.mark.first_position
        ]

    def _remember(self, entries: Sequence[Entry]) -> None:
        self.chains.extend([entry.chain_crc for entry in entries])
        self.positions.extend([entry.position for entry in entries])
        self.ends.extend([entry.end for entry in entries])

    def _skip(self, hole: Hole) -> bool:
        if hole.position >= self._state.durable_position:
            return False
        damaged, index = hole.position, self.next_index
        following = self._next_whole(hole)
        if following is None:
            last = min(max(index, self._state.durable_index), self._stop_index)
            self.lost.append((damaged, max(self._state.durable_position, damaged + 1)))
        else:
            last = min(following.index - 1, self._stop_index)
            if following.position > damaged:
                self.lost.append((damaged, following.position))
            self._cursor = Cursor(following.index, following.position)
            count = last + 1 - index
            self.chains.extend([UNREADABLE] * count)
            self.positions.extend([damaged] * count)
            self.ends.extend([damaged] * count)
        self.next_index = last + 1
        self._report(hole, index, last)
        return following is not None

    def _report(self, hole: Hole, index: int, last: int) -> None:
        path, byte = self.segment_path(hole.position)
        found = _describe(hole.error)
        if last < index:
            expected = "padding to the end of the segment"
            self._log.add(FindingKind.PADDING, path, byte, expected, found)
        elif hole.reason is HoleReason.MISSING:
            expected, found = "a segment of the log", "no file"
            self._log.add(FindingKind.SEGMENT, path, 0, expected, found, first=index, last=last)
        else:
            expected = f"entry {index}"
            if hole.error.expected is not None:
                expected += f" with {hole.error.reason} {hole.error.expected}"
            self._log.add(FindingKind.ENTRY, path, byte, expected, found, first=index, last=last)

    def _next_whole(self, hole: Hole) -> Entry | None:
        """The first intact entry that can be found behind a hole."""
        index = self.next_index
        for position, expected in self._candidates(hole, index):
            found = self._reader.entry_at(position)
            if isinstance(found, Hole) or found.position != position:
                continue
            right_index = found.index > index if expected is None else found.index == expected
            room = min((position - hole.position) // HEADER_SIZE + 1, LOST_MAX)
            if right_index and found.index - index <= room:
                return found
        return None

    def _candidates(self, hole: Hole, index: int) -> Iterator[tuple[int, int | None]]:
        """Positions where an entry may begin, with its index if that is known."""
        damaged, size = hole.position, self._files[0].segment_size
        stop = segment_start(damaged, size) + size
        if stop != damaged + size and self._cursor.end == damaged:
            yield stop, index  # only the padding is damaged
        if hole.end < stop:
            yield hole.end, index + 1
        rows = [ROW.iter_unpack(each.read(index + 1, ROWS_TRIED)) for each in self._indexes]
        for of_one_entry in zip_longest(*rows):
            for fields in dict.fromkeys(of_one_entry):
                if fields is None:  # this index ends before
                    continue
                row = EntryIndexRow._make(fields)
                if row.position > damaged and row.entry_index > index:
                    yield row.position, row.entry_index
        for start in self._segments:
            if start > damaged:
                yield start, None


def _describe(error: CorruptEntryError) -> str:
    return error.reason if error.found is None else f"{error.reason} {error.found}"
