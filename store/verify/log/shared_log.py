"""The log of replicas that have the same bytes: compared, and read once for all of them.

This is the way of replicas with nothing wrong, and nothing else: whatever is not as it must be ends
it with an error that says no more than that. :mod:`store.verify.log.log_walk` then tells replica by
replica what it is.

All bytes go through two buffers that are used again (:mod:`store.verify.files.read_buffers`).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from store.errors import CorruptEntryError, StoreError
from store.io.filesystem import ReadableFile, ReadableFileSystem
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
from store.verify.files.read_buffers import Buffers
from store.verify.plan.ranges import Border


class UnequalError(StoreError):
    """The replicas do not have the same bytes, or one has not all of them."""


@dataclass(slots=True)
class Window:
    """Whole entries that follow each other. Their bytes are in ``data`` until the next window.

    ``position`` is that of the first byte of ``data``.
    """

    position: int
    data: memoryview
    entries: list[Entry]


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
        self._fs = fs
        self._directories = directories
        self._segment_size = segment_size
        self._stop_index = last_index
        self._buffers = buffers
        self._at = border.position
        self._chain = border.chain
        self._term = border.term
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
        start = segment_start(position, self._segment_size)
        return f"{self._directories[0]}/commitlog/{segment_name(start)}", position - start

    def windows(self) -> Iterator[Window]:
        """All entries. Raises :class:`UnequalError` and :class:`CorruptEntryError`."""
        while self.next_index <= self._stop_index:
            start = segment_start(self._at, self._segment_size)
            with ExitStack() as opened:
                files = [self._open(directory, start, opened) for directory in self._directories]
                while (
                    self.next_index <= self._stop_index
                    and segment_start(self._at, self._segment_size) == start
                ):
                    window = self._next(files, start)
                    if window.entries:
                        yield window

    def _open(self, directory: str, start: int, opened: ExitStack) -> ReadableFile:
        path = f"{directory}/commitlog/{segment_name(start)}"
        try:
            file = self._fs.open(path, writable=False)
        except FileNotFoundError:
            raise UnequalError(f"{path}: no such file") from None
        opened.callback(file.close)
        return file

    def _next(self, files: Sequence[ReadableFile], start: int) -> Window:
        """The entries that are whole in a window; none where it begins with the padding."""
        position = self._at
        view = self._read(files[0], start)
        entries: list[Entry] = []
        compared = 0
        while self.next_index <= self._stop_index:
            at = self._at - position
            remaining = start + self._segment_size - self._at
            magic, size = (
                PADDING.unpack_from(view, at) if len(view) - at >= PADDING_SIZE else (0, 0)
            )
            if magic == PADDING_MAGIC:
                if size != remaining:
                    raise CorruptEntryError("padding", expected=remaining, found=size)
                self._at += remaining
                compared += PADDING_SIZE
                break
            if entries and not HEADER_SIZE <= size <= len(view) - at:
                break
            entries.append(self._take(decode_entry(view, at, self._chain), remaining))
            compared = self._at - position
        self._compare(files, view, position - start, compared)
        return Window(position, view, entries)

    def _read(self, file: ReadableFile, start: int) -> memoryview:
        """A window from where the log stands, with at least one entry if that is whole."""
        offset = self._at - start
        room = self._segment_size - offset
        view = self._buffers.window(min(self._buffers.window_size, room), offset)
        view = view[: file.pread_into(view, offset)]
        if len(view) < HEADER_SIZE:
            return view
        _, size, index, _, position, _, _, _, length = HEADER.unpack_from(view)
        # So much must be right before memory is taken for the size.
        if (index, position, length) != (self.next_index, self._at, size - HEADER_SIZE):
            return view
        if len(view) < size <= room:
            view = self._buffers.window(size, offset)
            view = view[: file.pread_into(view, offset)]
        return view

    def _take(self, entry: Entry, remaining: int) -> Entry:
        size = entry.size
        if (
            entry.index != self.next_index
            or entry.term < self._term
            or size + PADDING_SIZE > remaining
            or entry.position != self._at
            or entry.position != next_position(self.end_position, size, self._segment_size)
        ):
            raise CorruptEntryError("place", expected=self.next_index, found=entry)
        self._at = self.end_position = entry.position + size
        self._chain = entry.chain_crc
        self._term = entry.term
        self.next_index = entry.index + 1
        return entry

    def _compare(
        self, files: Sequence[ReadableFile], view: memoryview, begin: int, size: int
    ) -> None:
        """Raises :class:`UnequalError` unless all files have what the first one has there."""
        piece = self._buffers.piece
        octets = memoryview(piece.octets)
        for file in files[1:]:
            for at in range(0, size, piece.size):
                wanted = min(piece.size, size - at)
                place = piece.place(begin + at)
                count = file.pread_into(octets[place : place + wanted], begin + at)
                # This compares by memcmp; views would be compared byte by byte.
                same = piece.octets.startswith(view[at : at + wanted], place)
                if count != wanted or not same:
                    raise UnequalError(f"{file.path}: other bytes from byte {begin + at} on")
