"""The commit log: one line of bytes, entry after entry, over segments.

This layer knows bytes and positions only. :class:`~store.replica.ReplicaStore` checks indexes and
terms. The log always ends with its last entry. Behind it the last segment has zeros. The padding
that closes a segment is written together with the first entry of the next one.

Threads: the storage thread calls :meth:`append`, :meth:`sync` and :meth:`truncate`. It also calls
:meth:`begin_append`, which another thread may call while the storage thread has nothing to do. One
background thread calls :meth:`preallocate_next`, :meth:`drop_cached` and :meth:`expire`. Any thread
reads. The table of segments is changed under a lock and read without one.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Sequence

from store.errors import DamagedError, DiskFullError, OutOfRangeError
from store.io.filesystem import File, FileSystem
from store.log.entry import PADDING_SIZE, Entry
from store.log.layout import lay_out, segment_start
from store.log.log_reader import LogReader, Piece
from store.log.room_ahead import RoomAhead
from store.log.segment import ZERO_STEP, Segment, SegmentSpan

# Descriptors kept open, most of them for reading old segments.
OPEN_SEGMENTS_MAX = 128
# Bytes that stay in the page cache if nobody reads the log, and bytes dropped at a time.
CACHE_KEPT = 64 << 20
CACHE_STEP = 1 << 20
OUT_OF_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})


class CommitLog:
    """The log from ``first_position`` to ``end``, of which all below ``synced_end`` is durable."""

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        segment_size: int,
        min_free_bytes: int,
        *,
        direct: bool = False,
    ) -> None:
        """``direct``: the log is written past the page cache (see :mod:`store.io.direct_io`)."""
        self._fs = fs
        self._table = threading.Lock()
        self._opened: dict[int, None] = {}
        self._dirty: dict[int, Segment] = {}
        self._refused = False
        self._closing = False
        self.directory = directory
        self.segment_size = segment_size
        self.min_free_bytes = min_free_bytes
        self.direct = direct
        self.segments: dict[int, Segment] = {}
        self.first_position = 0
        self.end = 0
        self.synced_end = 0
        self._cached_from = -1
        self._room = RoomAhead(segment_size)
        self.reader = LogReader(self)
        """Reads everything that the files hold, also behind the log's end."""

    # The storage thread.

    def append(self, entries: Sequence[Entry]) -> None:
        """Writes entries that follow the log's end: one write for each segment they touch.

        Raises :class:`~store.errors.StoreError` if a position is not the next one, and
        :class:`~store.errors.DiskFullError` if there is no room: in both cases the log ends
        where it did. Any other failure is an ``OSError``.
        """
        if not entries:
            return
        writes = lay_out(entries, self.end, self.segment_size)
        end = entries[-1].end
        zeros = self._room.needs_zeros
        try:
            for position, data in writes:
                segment = self._segment_of(position)
                self._dirty[segment.start] = segment
                segment.append(data, position - segment.start, zeros_ahead=zeros)
        except OSError as error:
            if error.errno not in OUT_OF_SPACE:
                raise
            self._refused = True
            missing = end - self.end
            raise DiskFullError(f"{self.directory}: no room for {missing} bytes") from error
        self._room.count(end - self.end)
        self.end = end

    def begin_append(
        self,
        entries: Sequence[Entry],
        written: Callable[[], None],
        then: Callable[[OSError | None], None],
    ) -> bool:
        """Begins to append and sync in one write, if the system can do that without a thread. If
        all goes well, ``written`` is called before ``then``: by then the log ends behind the
        entries, but nobody has been told that they are durable.

        Raises :class:`~store.errors.StoreError` as :meth:`append` does. For ``then`` and what is
        returned see :meth:`~store.io.filesystem.File.begin_append`; the log ends where it did until
        the write has ended well.
        """
        position = self.end
        segment = self.segments.get(segment_start(position, self.segment_size))
        if segment is None or self._dirty or not entries:
            return False
        writes = lay_out(entries, self.end, self.segment_size)
        if len(writes) > 1:
            return False
        end = entries[-1].end

        def ended(error: OSError | None) -> None:
            if error is None:
                self._room.count(end - position)
                self.end = end
                written()
                self.synced_end = end
            then(error)

        return segment.begin_append(writes[0][1], position - segment.start, ended)

    def sync(self) -> None:
        """All that was appended is durable on return. Every ``OSError`` is final."""
        end = self.end
        dirty, self._dirty = self._dirty, {}
        for segment in dirty.values():
            segment.sync()
        self.synced_end = end

    def truncate(self, end: int) -> None:
        """Makes the log end at ``end`` and zeroes everything behind; durable on return."""
        old_end, self.end = self.end, end
        self.synced_end = min(self.synced_end, end)
        start = segment_start(end, self.segment_size)
        while start < old_end:
            segment = self._segment_of(start)
            segment.clear(max(end - start, 0), min(old_end - start, segment.size))
            self._dirty[start] = segment
            start += self.segment_size
        self.sync()

    # Recovery, before any other thread knows this log.

    def new_segment(self, start: int) -> Segment:
        """The segment that begins at ``start``, not yet opened nor in the table."""
        return Segment(self._fs, self.directory, start, self.segment_size, direct=self.direct)

    def remove_segment(self, segment: Segment) -> None:
        """Removes the file and its place in the table; :meth:`sync_directory` makes it durable."""
        self.segments.pop(segment.start, None)
        self._opened.pop(segment.start, None)
        segment.close()
        self._fs.remove(segment.path)

    def sync_directory(self) -> None:
        self._fs.sync_directory(self.directory)

    # The background thread.

    @property
    def needs_preallocation(self) -> bool:
        """Whether :meth:`preallocate_next` has something to do, room on the disk permitting."""
        return not self._room.is_enough(self.end, self.segments)

    def preallocate_next(self) -> None:
        """Zeroes the current segment ahead of the log and, once half of it is used, the next one.
        Stops before the disk has less than ``min_free_bytes`` free; that is no error.
        """
        self._room.sample(self.end)
        for start, found, wanted in self._room.rooms(self.end, self.segments):
            if found < wanted and self._has_free(self._step_size()):
                self._prepare(self._segment_of(start), wanted)

    def drop_cached(self) -> None:
        """Gives the page cache of all but the newest durable bytes back to the system. Otherwise a
        log that is only written would fill the machine's memory with pages that nobody reads. Each
        of them would be new. If the system must free other pages for it, or a hypervisor must
        provide the memory, that costs many times the write. Dropped pages are used again for the
        next writes.
        """
        if self._cached_from < 0:
            self._cached_from = self.synced_end  # what recovery read is left to the system
        position = max(self._cached_from, self.first_position)
        kept_from = self.synced_end - CACHE_KEPT
        while position + CACHE_STEP <= kept_from:
            start = segment_start(position, self.segment_size)
            size = min(kept_from, start + self.segment_size) - position
            segment = self.segments.get(start)
            if segment is not None:
                self._open(segment).drop_cached(size, position - start)
            position += size
        self._cached_from = position

    def start_segment(self) -> None:
        """Makes the segment of ``end`` if it does not exist, with a first step of zeros. On a full
        disk this is put off: the log can be read, and has no room.
        """
        try:
            segment = self._segment_of(self.end)
            if segment.zeroed_end == 0:
                segment.zero_step(segment.file)
        except OSError as error:
            if error.errno not in OUT_OF_SPACE:
                raise
            self._refused = True

    def expire(self, position: int) -> None:
        """Removes the segments that lie wholly below ``position``, oldest first."""
        self.first_position = max(self.first_position, position)
        with self._table:
            kept = dict(self.segments)
            removed = [
                kept.pop(start) for start in list(kept) if start + self.segment_size <= position
            ]
            self.segments = kept
            for segment in removed:
                self._opened.pop(segment.start, None)
        for segment in removed:
            segment.release_file()
            self._fs.remove(segment.path)
        if removed:
            self._fs.sync_directory(self.directory)
            self._refused = False

    # Any thread.

    def has_room(self, size: int) -> bool:
        """Whether an entry of ``size`` bytes can be appended without running out of disk."""
        start = segment_start(self.end, self.segment_size)
        needed = size + PADDING_SIZE
        current = self.segments.get(start)
        if current is not None and self.end - start + needed <= current.zeroed_end:
            return True
        following = self.segments.get(start + self.segment_size)
        if (
            current is not None
            and current.zeroed_end == self.segment_size
            and following is not None
            and needed <= following.zeroed_end
        ):
            return True
        return not self._refused and self._has_free(needed)

    def opened(self, start: int) -> File | None:
        """The file of a segment as this log reads and writes it; None if there is none."""
        segment = self.segments.get(start)
        try:
            return None if segment is None else self._open(segment)
        except FileNotFoundError:
            return None

    def spans(self) -> list[SegmentSpan]:
        """The segments that hold entries, oldest first."""
        end = self.end
        return [
            SegmentSpan(start, min(start + self.segment_size, end))
            for start in sorted(self.segments)
            if start < end
        ]

    def read(self, position: int, size: int) -> bytes:
        """The bytes at ``position``, which lie within one segment.

        Raises :class:`~store.errors.OutOfRangeError` for bytes that the log does not hold, and
        :class:`~store.errors.DamagedError` if the file cannot give what the log holds.
        """
        start = segment_start(position, self.segment_size)
        if (
            not self.first_position <= position <= position + size <= self.end
            or position + size > start + self.segment_size
        ):
            raise OutOfRangeError(
                f"{size} bytes at position {position} are not in one segment of the log, "
                f"which holds {self.first_position} to {self.end}"
            )
        data, missing = self.read_piece(position, size)
        if missing is not None:
            path, byte = self.locate(position + len(data))
            raise DamagedError(path, byte, missing.value)
        return bytes(data)

    def read_piece(self, position: int, size: int) -> Piece:
        """As :meth:`~store.log.log_reader.LogReader.read`, of a position below the log's end.

        Raises :class:`~store.errors.OutOfRangeError` if it has expired.
        """
        segment = self.segments.get(segment_start(position, self.segment_size))
        piece = self.reader.read(position, size)
        if piece.missing is not None and self._has_expired(position, segment):
            raise OutOfRangeError(f"position {position} has expired")
        return piece

    def locate(self, position: int) -> tuple[str, int]:
        """The file that holds ``position``, and the byte in that file."""
        start = segment_start(position, self.segment_size)
        return self.new_segment(start).path, position - start

    def close(self) -> None:
        """Closes all files. No other call may be under way or follow."""
        self._closing = True
        for segment in self.segments.values():
            segment.close()

    def _has_expired(self, position: int, segment: Segment | None) -> bool:
        """Whether ``segment``, which held the position, is no longer part of the log."""
        now = self.segments.get(segment_start(position, self.segment_size))
        return now is not segment or position < self.first_position

    def _open(self, segment: Segment) -> File:
        opened = segment.opened
        if opened is not None:
            return opened
        with self._table:
            file = segment.file
            self._opened[segment.start] = None
            self._close_oldest()
        return file

    def _close_oldest(self) -> None:
        """Bounds the number of open descriptors. Files that may still need a sync stay open."""
        if len(self._opened) <= OPEN_SEGMENTS_MAX:
            return
        unsynced = segment_start(self.synced_end, self.segment_size)
        for start in self._opened:
            if start < unsynced:
                del self._opened[start]
                segment = self.segments.get(start)
                if segment is not None:  # or a reader opened it as it expired
                    segment.release_file()
                return

    def _segment_of(self, position: int) -> Segment:
        """The segment in which ``position`` lies, open; made where it does not exist yet."""
        start = segment_start(position, self.segment_size)
        segment = self.segments.get(start)
        if segment is None:
            with self._table:
                segment = self.segments.get(start)
                if segment is None:
                    segment = self.new_segment(start)
                    segment.create()
                    self.segments[start] = segment
                    self._opened[start] = None
                    self._close_oldest()
        self._open(segment)
        return segment

    def _prepare(self, segment: Segment, wanted: int) -> None:
        file = self._fs.open(segment.path)
        try:
            while segment.zeroed_end < wanted and not self._closing:
                if not self._reserved or not segment.allocate(file, wanted):
                    segment.zero_step(file)
                self._refused = False
                if not self._has_free(self._step_size()):
                    break
        except OSError as error:
            if error.errno not in OUT_OF_SPACE:
                raise
            self._refused = True
        finally:
            file.close()

    def _step_size(self) -> int:
        return min(self._reserved or ZERO_STEP, self.segment_size)

    @property
    def _reserved(self) -> int:
        """The bytes to reserve at a time. After a full disk the first step is a small one."""
        return 0 if self._refused else self._room.reserved

    def _has_free(self, size: int) -> bool:
        return self._fs.free_bytes(self.directory) >= self.min_free_bytes + size
