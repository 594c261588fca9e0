"""Reading a whole commit log as recovery does, but on beyond damage, to tell all of it."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

from store.errors import CorruptEntryError
from store.io.filesystem import ReadableFileSystem
from store.log.entry import HEADER_SIZE, Entry
from store.log.entry_index import ROW, ROW_SIZE, EntryIndexRow
from store.log.layout import parse_segment_name, segment_start
from store.log.log_reader import NO_LIMIT, Cursor, Hole, HoleReason, LogReader, SegmentFiles
from store.verify.files.row_files import RowFiles
from store.verify.findings import FindingKind, FindingLog
from store.verify.plan.ranges import Border
from store.verify.state.state_files import StateFiles

# How many rows of the entry index are tried to find the log's course again behind damage.
ROWS_TRIED = 1000
UNREADABLE = -1
LOST_MAX = 1 << 24
"""So many entries at most are stepped over at once: a range has fewer, whatever a header says."""


class LogWalk:
    """The entries of a range in order. What is below the durable position and wrong is a finding.

    The range begins at ``border`` and ends with ``last_index``, or where the log ends.
    """

    def __init__(
        self,
        fs: ReadableFileSystem,
        directory: str,
        state: StateFiles,
        log: FindingLog,
        *,
        border: Border,
        last_index: int | None,
    ) -> None:
        self._state = state
        self._log = log
        self._rows = RowFiles(fs, f"{directory}/index", ROW_SIZE)
        self._segment_size = state.identity.segment_size
        self._files = SegmentFiles(fs, directory, self._segment_size)
        self._reader = LogReader(self._files)
        self._cursor = Cursor(
            border.index, border.position, border.chain, border.term, end=border.position
        )
        self._stop_index = NO_LIMIT if last_index is None else last_index
        self.first_index = self.next_index = border.index
        self.end_position = border.position
        self.chains = array("q")
        """The chain CRC of each entry from ``first_index`` on, -1 for one that is unreadable; none
        of those that are lost to the end."""
        self.positions = array("q")
        self.ends = array("q")
        """Likewise: where each entry begins and ends; what is unreadable ends where it begins."""
        self.lost: list[tuple[int, int]] = []
        """Positions, from and to, of what could not be read."""
        self._segments = list_segments(fs, f"{directory}/commitlog", state)

    @property
    def last_index(self) -> int:
        return self.next_index - 1

    def segment_path(self, position: int) -> tuple[str, int]:
        """The file that holds a position of the log, and the byte in it."""
        return self._files.locate(position)

    def entries(self) -> Iterator[Entry]:
        """Every whole entry, checked; damage on the way becomes findings."""
        try:
            while self._cursor.index <= self._stop_index:
                window = self._reader.window(self._cursor, last_index=self._stop_index)
                for entry in window.entries:
                    self._take(entry)
                    yield entry
                hole = window.hole
                if hole is None:
                    continue
                if hole.position >= self._state.durable_position or not self._resume(hole):
                    break
        finally:
            self._files.close()

    def _take(self, entry: Entry) -> None:
        self.end_position = entry.end
        self.next_index = entry.index + 1
        self.chains.append(entry.chain_crc)
        self.positions.append(entry.position)
        self.ends.append(entry.end)

    # --- beyond damage

    def _resume(self, hole: Hole) -> bool:
        """Notes the damage and finds the next entry that is whole; false where there is none."""
        damaged, index = hole.position, self.next_index
        following = self._next_whole(hole)
        path, byte = self.segment_path(damaged)
        if following is None:
            last = self._clamp(max(index, self._state.durable_index))
            self.lost.append((damaged, max(self._state.durable_position, damaged + 1)))
        else:
            last = self._clamp(following.index - 1)
            if following.position > damaged:
                self.lost.append((damaged, following.position))
            self._cursor = Cursor(following.index, following.position)
            count = last + 1 - index
            self.chains.extend([UNREADABLE] * count)
            self.positions.extend([damaged] * count)
            self.ends.extend([damaged] * count)
        self.next_index = last + 1
        if last < index:
            self._log.add(
                FindingKind.PADDING,
                path,
                byte,
                expected="padding to the end of the segment",
                found=_describe(hole.error),
            )
        elif hole.reason is HoleReason.MISSING:
            self._log.add(
                FindingKind.SEGMENT,
                path,
                0,
                expected="a segment of the log",
                found="no file",
                first=index,
                last=last,
            )
        else:
            self._log.add(
                FindingKind.ENTRY,
                path,
                byte,
                expected=_expectation(hole.error, index),
                found=_describe(hole.error),
                first=index,
                last=last,
            )
        return following is not None

    def _clamp(self, index: int) -> int:
        return min(index, self._stop_index)

    def _next_whole(self, hole: Hole) -> Entry | None:
        """The first whole entry behind a hole that can be found."""
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
        """Positions where an entry may begin, and its index where that is known."""
        damaged = hole.position
        stop = segment_start(damaged, self._segment_size) + self._segment_size
        if stop != damaged + self._segment_size and self._cursor.end == damaged:
            yield stop, index  # only a padding is damaged
        if hole.end < stop:
            yield hole.end, index + 1
        for fields in ROW.iter_unpack(self._rows.read(index + 1, ROWS_TRIED)):
            row = EntryIndexRow._make(fields)
            if row.position > damaged and row.entry_index > index:
                yield row.position, row.entry_index
        for other in self._segments:
            if other > damaged:
                yield other, None


def _expectation(error: CorruptEntryError, index: int) -> str:
    if error.expected is None:
        return f"entry {index}"
    return f"entry {index} with {error.what} {error.expected}"


def _describe(error: CorruptEntryError) -> str:
    return error.what if error.found is None else f"{error.what} {error.found}"


def list_segments(fs: ReadableFileSystem, directory: str, state: StateFiles) -> list[int]:
    """Where the segments begin of which files are there, in order; those expired left out."""
    size = state.identity.segment_size
    names = fs.list_directory(directory) if fs.exists(directory) else []
    starts = [parse_segment_name(name) for name in names]
    return [
        start
        for start in starts
        if start is not None and start % size == 0 and start + size > state.mark.first_position
    ]


def check_segment_files(
    fs: ReadableFileSystem, directory: str, state: StateFiles, log: FindingLog, names: Sequence[str]
) -> None:
    """Notes what is wrong with the segments in ``names`` as files."""
    size = state.identity.segment_size
    for name in names:
        start = parse_segment_name(name)
        path = f"{directory}/{name}"
        if start is None:
            continue
        if start % size:
            log.add(
                FindingKind.SEGMENT,
                path,
                0,
                expected=f"a name that is a multiple of {size}",
                found=start,
            )
        elif start + size > state.mark.first_position:
            file = fs.open(path, writable=False)
            try:
                found = file.size()
            finally:
                file.close()
            if found > size:
                log.add(
                    FindingKind.SEGMENT,
                    path,
                    size,
                    expected=f"at most {size} bytes",
                    found=f"{found} bytes",
                )
