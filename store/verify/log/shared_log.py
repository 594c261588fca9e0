"""The log of replicas that have the same bytes: compared, and read once for all of them.

This is the way of replicas with nothing wrong, and nothing else: whatever is not as it must be ends
it with an error that says no more than that. :mod:`store.verify.log.log_walk` then tells replica by
replica what it is.

All bytes go through two buffers that are used again (:mod:`store.verify.files.read_buffers`).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

from store.errors import StoreError
from store.io.filesystem import ReadableFileSystem
from store.log.log_reader import WINDOW_SIZE, Cursor, LogReader, SegmentFiles, Window
from store.verify.files.read_buffers import PIECE_SIZE, Buffers
from store.verify.plan.ranges import Border


class UnequalError(StoreError):
    """The replicas do not have the same bytes, or one has not all of them."""


class SharedLog:
    """The entries of a range, from ``border`` to ``last_index``, of replicas in ``directories``."""

    def __init__(
        self,
        fs: ReadableFileSystem,
        directories: Sequence[str],
        segment_size: int,
        *,
        border: Border,
        last_index: int,
        buffers: Buffers,
    ) -> None:
        self._files = [SegmentFiles(fs, each, segment_size) for each in directories]
        first, *others = self._files
        self._reader = LogReader(first, buffers)
        self._others = [(LogReader(files), files) for files in others]
        self._stop_index = last_index
        self._buffers = buffers
        self._cursor = Cursor(
            border.index, border.position, border.chain, border.term, end=border.position
        )
        self.first_index = self.next_index = border.index
        self.end_position = border.position
        self.lost: list[tuple[int, int]] = []
        self.chains = array("q")
        self.positions = array("q")
        self.ends = array("q")
        """As of a :class:`~store.verify.log.log_walk.LogWalk`, and empty: there is nothing to find
        here.
        """

    @property
    def last_index(self) -> int:
        return self.next_index - 1

    def segment_path(self, position: int) -> tuple[str, int]:
        """The file of the first replica that holds a position of the log, and the byte in it."""
        return self._files[0].locate(position)

    def windows(self) -> Iterator[Window]:
        """All entries. Raises :class:`UnequalError` and :class:`CorruptEntryError`."""
        try:
            while self._cursor.index <= self._stop_index:
                window = self._reader.window(
                    self._cursor, last_index=self._stop_index, size=WINDOW_SIZE
                )
                if window.hole is not None:
                    raise window.hole.error
                self._compare(window)
                if window.entries:
                    self.next_index = self._cursor.index
                    self.end_position = window.entries[-1].end
                    yield window
        finally:
            for files in self._files:
                files.close()

    def _compare(self, window: Window) -> None:
        """Raises :class:`UnequalError` unless all replicas have what the first one has there."""
        piece = self._buffers.piece
        octets = memoryview(piece.octets)
        size = len(window.data)
        for reader, files in self._others:
            for at in range(0, size, PIECE_SIZE):
                wanted = min(PIECE_SIZE, size - at)
                path, byte = files.locate(window.position + at)
                place = piece.place(byte)
                found = reader.read_into(octets[place : place + wanted], window.position + at)
                # This compares by memcmp; views would be compared byte by byte.
                same = piece.octets.startswith(window.data[at : at + wanted], place)
                if found.missing is not None or not same:
                    raise UnequalError(f"{path}: other bytes from byte {byte} on")
