"""Reading a whole commit log as recovery does, but on beyond damage, to tell all of it."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

from store.errors import CorruptEntryError
from store.io.filesystem import ReadableFile, ReadableFileSystem
from store.log.entry import (
    HEADER_SIZE,
    PADDING,
    PADDING_MAGIC,
    PADDING_SIZE,
    Entry,
    decode_entry,
)
from store.log.entry_index import ROW, ROW_SIZE, EntryIndexRow
from store.log.layout import next_position, parse_segment_name, segment_name, segment_start
from store.verify.files.row_files import RowFiles
from store.verify.findings import FindingKind, FindingLog
from store.verify.plan.ranges import Border
from store.verify.state.state_files import StateFiles

READ_SIZE = 4 << 20
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
        self._fs = fs
        self._state = state
        self._log = log
        self._rows = RowFiles(fs, f"{directory}/index", ROW_SIZE)
        self._directory = f"{directory}/commitlog"
        self._segment_size = state.identity.segment_size
        self._file: ReadableFile | None = None
        self._file_start = -1
        self._view = memoryview(b"")
        self._view_position = 0
        self._at = border.position
        self._end: int | None = border.position
        self._chain = border.chain
        self._term = border.term
        self._stop_index = last_index
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
        self._segments = list_segments(fs, self._directory, state)

    @property
    def last_index(self) -> int:
        return self.next_index - 1

    def segment_path(self, position: int) -> tuple[str, int]:
        """The file that holds a position of the log, and the byte in it."""
        start = segment_start(position, self._segment_size)
        return f"{self._directory}/{segment_name(start)}", position - start

    def entries(self) -> Iterator[Entry]:
        """Every whole entry, checked; damage on the way becomes findings."""
        try:
            while self._stop_index is None or self.next_index <= self._stop_index:
                try:
                    entry = self._read()
                except CorruptEntryError as error:
                    if self._at >= self._state.durable_position or not self._resume(error):
                        break
                    continue
                if entry is not None:
                    self._take(entry)
                    yield entry
        finally:
            self._close()

    # --- reading on

    def _read(self) -> Entry | None:
        """The entry at hand, or ``None`` where a padding leads on to the next segment."""
        offset = self._at % self._segment_size
        remaining = self._segment_size - offset
        view, at = self._window(HEADER_SIZE)
        if len(view) - at >= PADDING_SIZE:
            magic, size = PADDING.unpack_from(view, at)
            if magic == PADDING_MAGIC:
                self._leave_segment(size, remaining)
                return None
            if HEADER_SIZE <= size <= remaining - PADDING_SIZE:
                view, at = self._window(size)
        entry = decode_entry(view, at, self._chain)
        self._check_place(entry, remaining)
        return entry

    def _leave_segment(self, size: int, remaining: int) -> None:
        if size != remaining:
            raise CorruptEntryError("padding", expected=remaining, found=size)
        self._at += remaining

    def _check_place(self, entry: Entry, remaining: int) -> None:
        if entry.index != self.next_index:
            raise CorruptEntryError("index", expected=self.next_index, found=entry.index)
        if entry.term < self._term:
            raise CorruptEntryError("term", expected=f"at least {self._term}", found=entry.term)
        if entry.size + PADDING_SIZE > remaining:
            raise CorruptEntryError(
                "size", expected=f"at most {remaining - PADDING_SIZE}", found=entry.size
            )
        position = self._at
        if self._end is not None:
            position = next_position(self._end, entry.size, self._segment_size)
        if not entry.position == self._at == position:
            raise CorruptEntryError(
                "position", expected=position, found=f"{entry.position} at {self._at}"
            )

    def _take(self, entry: Entry) -> None:
        size = entry.size
        self._at = self._end = self.end_position = entry.position + size
        self._chain = entry.chain_crc
        self._term = entry.term
        self.next_index = entry.index + 1
        self.chains.append(entry.chain_crc)
        self.positions.append(entry.position)
        self.ends.append(self._at)

    # --- beyond damage

    def _resume(self, error: CorruptEntryError) -> bool:
        """Notes the damage and finds the next entry that is whole; false where there is none."""
        damaged, index = self._at, self.next_index
        following = self._next_whole()
        path, byte = self.segment_path(damaged)
        if following is None:
            last = self._clamp(max(index, self._state.durable_index))
            self._end = None
            self.lost.append((damaged, max(self._state.durable_position, damaged + 1)))
        else:
            last = self._clamp(following.index - 1)
            self._at = following.position
            self._end = None
            self._chain = None
            self._term = -1
            if following.position > damaged:
                self.lost.append((damaged, following.position))
        if following is not None:
            count = last + 1 - index
            self.chains.extend([UNREADABLE] * count)
            self.positions.extend([damaged] * count)
            self.ends.extend([damaged] * count)
        self.next_index = last + 1
        missing = segment_start(damaged, self._segment_size) not in self._segments
        if last < index:
            self._log.add(
                FindingKind.PADDING,
                path,
                byte,
                expected="padding to the end of the segment",
                found=_describe(error),
            )
        elif missing:
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
                expected=_expectation(error, index),
                found=_describe(error),
                first=index,
                last=last,
            )
        return following is not None

    def _clamp(self, index: int) -> int:
        return index if self._stop_index is None else min(index, self._stop_index)

    def _next_whole(self) -> Entry | None:
        """The first whole entry behind the damage at hand that can be found."""
        damaged, index = self._at, self.next_index
        for position, expected in self._candidates(damaged, index, self._stated_size()):
            self._at = position
            try:
                size = self._stated_size()
                if not HEADER_SIZE <= size <= self._segment_size:
                    continue
                entry = decode_entry(*self._window(size))
            except CorruptEntryError:
                continue
            right_index = entry.index > index if expected is None else entry.index == expected
            room = min((position - damaged) // HEADER_SIZE + 1, LOST_MAX)
            if right_index and entry.position == position and entry.index - index <= room:
                self._at = damaged
                return entry
        self._at = damaged
        return None

    def _candidates(
        self, damaged: int, index: int, stated_size: int
    ) -> Iterator[tuple[int, int | None]]:
        """Positions where an entry may begin, and its index where that is known."""
        start = segment_start(damaged, self._segment_size)
        if damaged != start and self._end == damaged:
            yield start + self._segment_size, index  # only a padding is damaged
        if stated_size >= HEADER_SIZE:
            yield damaged + stated_size, index + 1
        for fields in ROW.iter_unpack(self._rows.read(index + 1, ROWS_TRIED)):
            row = EntryIndexRow._make(fields)
            if row.position > damaged and row.entry_index > index:
                yield row.position, row.entry_index
        for other in self._segments:
            if other > damaged:
                yield other, None

    def _stated_size(self) -> int:
        """What the header at hand states as the size of its entry; 0 where there is none."""
        try:
            view, at = self._window(HEADER_SIZE)
        except CorruptEntryError:
            return 0
        return PADDING.unpack_from(view, at)[1] if len(view) - at >= PADDING_SIZE else 0

    # --- files

    def _window(self, size: int) -> tuple[memoryview, int]:
        """Bytes with ``size`` of them from where the walk stands, fewer where the file ends."""
        at = self._at - self._view_position
        if at >= 0 and at + size <= len(self._view):
            return self._view, at
        start = segment_start(self._at, self._segment_size)
        if start not in self._segments:
            raise CorruptEntryError("segment", expected="a file", found="none")
        if self._file is None or self._file_start != start:
            self._close()
            self._file = self._fs.open(f"{self._directory}/{segment_name(start)}", writable=False)
            self._file_start = start
        offset = self._at - start
        wanted = min(max(size, READ_SIZE), self._segment_size - offset)
        try:
            self._view = memoryview(self._file.pread(wanted, offset))
        except OSError as error:
            raise CorruptEntryError("readable bytes", found=error) from error
        self._view_position = self._at
        return self._view, 0

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


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
