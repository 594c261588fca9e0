"""Segments: the files of the commit log, zeroed ahead of use.

A segment file is named by the position of its first byte. It is filled with real zeros before
entries are written into it, because a sync that need not grow the file is much cheaper. Zeros are
written in steps of 1 MiB, each synced, by a background thread: a sync of entries in the same file
waits for no more than one step. Where appends are large, the zeros would cost more than they save.
There the room ahead is only reserved, and reads as zeros (:meth:`Segment.allocate`). Small appends
that follow write the zeros there themselves, a step at a time. Where the background thread lags,
writes of entries grow the file: correct, and slower.

Threads: the storage thread writes entries while the background thread extends the same file.
``zeroed_end`` divides the two: below it only the storage thread writes, without a lock; at and
above it whoever grows the file holds the lock and then moves the line up. It never moves down, so
zeros can never overwrite an entry. The two threads sync through descriptors of their own, because
Linux reports a failed write-back once per descriptor, and an error that only the background thread
saw would leave the storage thread's next sync a lie.
"""

from __future__ import annotations

import mmap
import threading
from collections.abc import Callable
from typing import NamedTuple

from store.io.filesystem import BLOCK_SIZE, Bytes, File, FileSystem
from store.io.unreadable_blocks import (
    overwrite_blocks,
    overwrite_whole_blocks,
    read_until_unreadable,
)
from store.log.layout import segment_name

ZERO_STEP = 1 << 20
_ZEROS = memoryview(mmap.mmap(-1, ZERO_STEP))  # whole pages, for direct writes


class SegmentSpan(NamedTuple):
    """The positions that a segment covers with entries; ``end`` is exclusive."""

    start: int
    end: int


class Segment:
    """One file of the log, from position ``start`` to ``start + size``. Offsets are in the file."""

    def __init__(
        self, fs: FileSystem, directory: str, start: int, size: int, *, direct: bool = False
    ) -> None:
        """``direct``: what is appended goes past the page cache, where the size allows that."""
        self._fs = fs
        self._directory = directory
        self._file: File | None = None
        self._growing = threading.Lock()
        self.path = f"{directory}/{segment_name(start)}"
        self.start = start
        self.size = size
        self.direct = direct and size % BLOCK_SIZE == 0
        self.zeroed_end = 0
        self._reserved = (0, 0)
        """The offsets between which the room ahead may be reserved only."""
        self.name_durable = False

    def create(self) -> None:
        """Makes the file, empty, or takes what a crash left under its name."""
        self._file = self._fs.open(self.path, create=True)
        self.zeroed_end = min(self._file.size(), self.size)

    def adopt(self) -> None:
        """Takes the size of a file that exists, and closes it: a log may have very many."""
        self.zeroed_end = min(self.file.size(), self.size)
        self.close()

    @property
    def opened(self) -> File | None:
        """The file, if it is open."""
        return self._file

    @property
    def file(self) -> File:
        """The open file; opened at the first use."""
        file = self._file
        if file is None:
            file = self._file = self._fs.open(self.path)
        return file

    def release_file(self) -> None:
        """Drops the open file; reads under way finish, and the next use opens it again."""
        self._file = None

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def append(self, data: Bytes, offset: int, *, zeros_ahead: bool = False) -> None:
        """Writes ``data`` at the end of the log: nothing but zeros lies behind it. With
        ``zeros_ahead``, room behind it that is only reserved gets a step of zeros before."""
        end = offset + len(data)
        if end <= self.zeroed_end:
            if zeros_ahead and self._is_reserved(offset, end):
                self._zero_reserved(end)
            self._append(self.file, data, offset)
            return
        with self._growing:
            self._append(self.file, data, offset)
            self.zeroed_end = max(self.zeroed_end, end)

    def begin_append(
        self, data: Bytes, offset: int, then: Callable[[OSError | None], None]
    ) -> bool:
        """Begins to append and sync, where that needs no other step; see :class:`File`. In room
        that is only reserved it does: the file system has to change an extent."""
        file = self._file
        end = offset + len(data)
        return (
            self.direct
            and self.name_durable
            and file is not None
            and end <= self.zeroed_end
            and not self._is_reserved(offset, end)
            and file.begin_append(data, offset, then)
        )

    def write(self, data: Bytes, offset: int) -> None:
        """Writes over bytes that are there, whatever lies behind them."""
        self.file.pwrite(data, offset)

    def sync(self) -> None:
        """All that was written, and the name of the file, is durable on return."""
        self.file.datasync()
        self._sync_name()

    def zero_step(self, file: File) -> bool:
        """Adds one step of synced zeros through ``file``, a descriptor of the caller's own.

        Returns whether there is more to do.
        """
        with self._growing:
            begin = self.zeroed_end
            if self.direct:
                begin += -begin % BLOCK_SIZE  # the entry that grew the file has filled its block
            length = min(ZERO_STEP, self.size - begin)
            if length <= 0:
                self.zeroed_end = self.size
                return False
            self._append(file, _ZEROS[:length], begin)
            self.zeroed_end = begin + length
        file.datasync()
        self._sync_name()
        return begin + length < self.size

    def allocate(self, file: File, end: int) -> bool:
        """Reserves room up to offset ``end`` through ``file``, a descriptor of the caller's own: it
        reads as zeros that are not written. Returns False if the file system cannot do that."""
        with self._growing:
            begin = self.zeroed_end
            if self.direct:
                begin += -begin % BLOCK_SIZE  # as in zero_step
                end += -end % BLOCK_SIZE
            if begin < end and not file.allocate(end - begin, begin):
                return False
            if begin < end:
                first, last = self._reserved
                self._reserved = (first if last == begin else begin, end)
            self.zeroed_end = max(begin, end)
        file.datasync()
        self._sync_name()
        return True

    def clear(self, begin: int, end: int) -> None:
        """Overwrites the bytes from offset ``begin`` to ``end`` with zeros, not yet synced."""
        for offset in range(begin, end, ZERO_STEP):
            self.write(_ZEROS[: min(ZERO_STEP, end - offset)], offset)

    def zero_unreadable(self, begin: int, end: int) -> None:
        """As :meth:`clear`, also where the disk cannot read what is there: for recovery, which
        takes what else is lost there for damage (:mod:`store.io.unreadable_blocks`)."""
        for offset in range(begin, end, ZERO_STEP):
            overwrite_blocks(self.file, _ZEROS[: min(ZERO_STEP, end - offset)], offset)
        within = begin % BLOCK_SIZE
        if begin == end and read_until_unreadable(self.file, within, begin - within)[1] is not None:
            # Or nothing could be appended to what it held.
            overwrite_whole_blocks(self.file, b"", begin)

    def _is_reserved(self, offset: int, end: int) -> bool:
        first, last = self._reserved
        return offset < last and end > first

    def _zero_reserved(self, end: int) -> None:
        """Writes a step of zeros from the first whole block behind ``end`` on."""
        with self._growing:
            last = self._reserved[1]
            begin = end + -end % BLOCK_SIZE
            zeroed = min(begin + ZERO_STEP, last)
            if begin < zeroed:
                self._append(self.file, _ZEROS[: zeroed - begin], begin)
            self._reserved = (zeroed, last) if zeroed < last else (0, 0)

    def _append(self, file: File, data: Bytes, offset: int) -> None:
        if self.direct:
            file.append_direct(data, offset)
        else:
            file.pwrite(data, offset)

    def _sync_name(self) -> None:
        if not self.name_durable:
            self._fs.sync_directory(self._directory)
            self.name_durable = True
