"""The reads of a replica's store. Any thread, also while others write; see :mod:`store.replica`."""

from __future__ import annotations

from store.errors import DamagedError
from store.io.disk_watermarks import DiskSpace
from store.io.filesystem import FileSystem
from store.log.entry import Entry
from store.log.entry_reader import (
    EntryRange,
    entry_at,
    read_entries,
    read_range,
)
from store.log.entry_repair import CheckedRange, check_entries
from store.log.segment import SegmentSpan
from store.recovery.recovery import OpenParts
from store.state.durable_mark import DurableMarkTracker


class ReplicaReads:
    """The part of :class:`~store.replica.ReplicaStore` that changes nothing."""

    def __init__(self, fs: FileSystem, directory: str, parts: OpenParts) -> None:
        self._fs = fs
        self._directory = directory
        self._log = parts.log
        self._index = parts.index
        state = parts.state
        self.checkpoints = state.checkpoints
        self._marks = DurableMarkTracker(
            file=state.mark_file, mark=state.mark, log=parts.log, index=parts.index
        )
        self._truncations = 0

    @property
    def first_index(self) -> int:
        """The first entry retained; one more than :attr:`last_index` in an empty log."""
        return self._index.first_index

    @property
    def last_index(self) -> int:
        """The last entry appended, synced or not."""
        return self._index.end_index - 1

    @property
    def segment_size(self) -> int:
        """Bytes of a segment of the log, one for the whole group."""
        return self._log.segment_size

    @property
    def first_position(self) -> int:
        return self._log.first_position

    @property
    def end_position(self) -> int:
        """Where the last entry appended ends."""
        return self._log.end

    @property
    def synced_position(self) -> int:
        """Where the last entry ends that is known to be durable."""
        return self._log.synced_end

    @property
    def min_free_bytes(self) -> int:
        """What the log leaves free on the disk."""
        return self._log.min_free_bytes

    def has_room(self, size: int) -> bool:
        """Whether the disk has room to append ``size`` more bytes."""
        return self._log.has_room(size)

    def entry_at(self, position: int, last_index: int) -> int:
        """The last entry up to ``last_index`` that begins at ``position`` or before.

        Raises :class:`~store.errors.OutOfRangeError` if there is none.
        """
        return entry_at(self._log, self._index, position, last_index)

    @property
    def index_needs_repair(self) -> bool:
        """Whether a read has come upon wrong rows of the entry index, and done without them."""
        return self._index.needs_repair

    def read(self, position: int, size: int) -> bytes:
        """Bytes of the log, unchecked. They must lie within one segment.

        Raises :class:`~store.errors.OutOfRangeError` for bytes that the log does not hold, and
        :class:`~store.errors.DamagedError` if the disk cannot read them.
        """
        return self._log.read(position, size)

    def read_entries(self, first_index: int, last_index: int, max_bytes: int) -> list[Entry]:
        """The entries from ``first_index`` to ``last_index``, as many as fit into ``max_bytes``.

        It is at least one, whatever its size. Every entry is checked against its CRC, its row in
        the entry index and the entry before it. Raises :class:`~store.errors.OutOfRangeError` if
        the log does not hold all of them, and :class:`~store.errors.DamagedError`.
        """
        while True:
            truncations = self._truncations
            try:
                return read_entries(self._log, self._index, first_index, last_index, max_bytes)
            except DamagedError:
                # A truncation drops rows, then counts itself, then zeroes the bytes. So if it came
                # in between, these may be its zeros and no damage.
                if truncations == self._truncations:
                    raise

    def read_range(self, first_index: int, last_index: int, max_bytes: int) -> EntryRange:
        """As :meth:`read_entries`, but in one piece of memory, and from one segment only.

        For committed entries, which are never truncated.
        """
        return read_range(self._log, self._index, first_index, last_index, max_bytes)

    def segments(self) -> list[SegmentSpan]:
        """First and end position of each segment that holds entries, oldest first."""
        return self._log.spans()

    def check_entries(self, first_index: int, last_index: int, max_bytes: int) -> CheckedRange:
        """Reads some committed entries, and says which are damaged."""
        return check_entries(self._log, self._index, first_index, last_index, max_bytes)

    def read_checkpoint(self, index: int, offset: int, size: int) -> tuple[int, int, bytes]:
        """See :meth:`store.state.checkpoint.Checkpoints.read_piece`."""
        return self.checkpoints.read_piece(index, offset, size)

    def beginning(self) -> tuple[int, int]:
        """The first entry retained and its position, of the same moment."""
        mark = self._marks.mark
        return mark.first_index, mark.first_position

    def disk_space(self) -> DiskSpace:
        """The free and the total bytes of the replica's file system."""
        fs, directory = self._fs, self._directory
        return DiskSpace(fs.free_bytes(directory), fs.total_bytes(directory))
