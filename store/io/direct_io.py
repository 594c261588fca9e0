"""Writing the end of a log past the page cache.

A page of the cache costs more than the write that fills it: the kernel must find memory for it, and
a virtual machine may have to ask its host. With ``O_DIRECT`` bytes go from one buffer, which is
used again and again, to the device. Writes must be whole blocks at multiples of the block size. So
the bytes of the first block that were written before are kept and written once more, as a page
cache does. Zeros fill the last block; zeros follow the end of a log anyway. Blocks that already lie
in memory as the device wants them, such as the zeros ahead of a log, are written from there.

The thread waits for the device in any case. So a single write is synced by the same call
(``RWF_DSYNC``). A second call would have to wait for the interpreter again, and some devices make
such a write durable without flushing everything else.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
from collections.abc import Callable
from typing import TypeAlias

from store.io.async_io import WriteSubmitter
from store.io.filesystem import BLOCK_SIZE, Bytes

BUFFER_SIZE = 1 << 20
"""The largest single write, in bytes; a multiple of the block."""

# A file system that does not write past the page cache, or not in such blocks, returns one of
# these.
_UNSUPPORTED = frozenset({errno.EINVAL, errno.EOPNOTSUPP})
_DSYNC_UNSUPPORTED = _UNSUPPORTED | {errno.ENOSYS}
# What a write that waits can do better, or tells better.
_TRY_AGAIN = _DSYNC_UNSUPPORTED | {
    errno.EAGAIN,
    errno.EINTR,
    errno.ENOMEM,
    errno.ENOSPC,
    errno.EDQUOT,
}
_O_DIRECT: int = getattr(os, "O_DIRECT", 0)
_DSYNC: int = getattr(os, "RWF_DSYNC", 0)

OpenFile: TypeAlias = Callable[[str, int], int]
"""As ``os.open``."""


class DirectWriter:
    """Appends to one file, for one thread at a time; closes its descriptor when it goes."""

    __slots__ = (
        "_address",
        "_buffer",
        "_dsync",
        "_end",
        "_fd",
        "_path",
        "_under_way",
        "synced",
    )

    def __init__(self, path: str, fd: int) -> None:
        """``fd`` was opened with ``O_DIRECT``, and is the writer's from now on."""
        self._path = path
        self._fd = fd
        self._buffer = mmap.mmap(-1, BUFFER_SIZE)  # memory of whole pages, as O_DIRECT wants it
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._buffer))
        self._under_way = False
        self._end = -1
        self._dsync = _DSYNC
        self.synced = False
        """Whether the last append is durable as it is."""

    @staticmethod
    def open(path: str, open_file: OpenFile | None = None) -> DirectWriter | None:
        """A writer for the file, or ``None`` if its file system knows no such writes."""
        if not _O_DIRECT:
            return None
        try:
            return DirectWriter(
                path, (open_file or os.open)(path, os.O_WRONLY | os.O_CLOEXEC | _O_DIRECT)
            )
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
            return None

    def continues(self, position: int) -> bool:
        """Whether the bytes of the block before ``position`` are at hand."""
        return position % BLOCK_SIZE == 0 or position == self._end

    def forget(self) -> None:
        """The file was written in another way: the bytes at hand may no longer be its own."""
        self._end = -1

    def append(self, data: Bytes, position: int, before: bytes = b"") -> bool:
        """Writes ``data``, and zeros to the end of its last block.

        ``before`` are the file's bytes from the beginning of the block up to ``position``; they
        are asked for where :meth:`continues` says no. Returns whether it was done: false if the
        device refuses such writes, and nothing has been written then.
        """
        assert not self._under_way, self._path  # noqa: S101 - what is under way needs the buffer
        view = memoryview(data)
        head = position % BLOCK_SIZE
        self._end = -1
        self.synced = False
        if not head and _whole_blocks(view):
            try:
                self._write_synced(view, position)
            except OSError as error:
                if error.errno not in _UNSUPPORTED:
                    raise
                return False
            return True
        buffer = self._buffer
        if before:
            buffer[:head] = before
        begin = position - head
        write = self._write_synced if head + len(view) <= BUFFER_SIZE else self._write
        while True:
            end = min(head + len(view), BUFFER_SIZE)
            blocks_end = self._fill(head, view[: end - head])
            try:
                with memoryview(buffer) as blocks:
                    write(blocks[:blocks_end], begin)
            except OSError as error:
                if error.errno not in _UNSUPPORTED or begin + head != position:
                    raise
                return False
            view = view[end - head :]
            if not view:
                break
            begin += end
            head = 0
        self._ends_with(end, begin + end)
        return True

    def begin(
        self,
        writes: WriteSubmitter,
        data: Bytes,
        position: int,
        then: Callable[[OSError | None], None],
    ) -> bool:
        """As :meth:`append` where that would be one synced write, which the kernel does meanwhile.

        See :meth:`~store.io.filesystem.File.begin_append` for ``then`` and what is returned.
        :meth:`continues` must hold.
        """
        head = position % BLOCK_SIZE
        end = head + len(data)
        if self._under_way or end > BUFFER_SIZE:
            return False  # what is under way needs the buffer as it is
        blocks_end = self._fill(head, data)
        self.synced = False

        def ended(result: int) -> None:
            self._under_way = False
            if result == blocks_end:
                self._ends_with(end, position + len(data))
                self.synced = True
                then(None)
            elif result >= 0 or -result in _TRY_AGAIN:
                # The bytes before are still at hand, and it may be that they are nowhere else.
                self._end = position
                then(BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), self._path))
            else:
                then(OSError(-result, os.strerror(-result), self._path))

        self._under_way = writes.submit(self._fd, self._address, blocks_end, position - head, ended)
        self._end = -1 if self._under_way else position
        return self._under_way

    def _fill(self, head: int, data: Bytes) -> int:
        """Puts data behind the first ``head`` bytes of the buffer; where its last block ends."""
        end = head + len(data)
        blocks_end = end + -end % BLOCK_SIZE
        self._buffer[head:end] = data
        self._buffer[end:blocks_end] = bytes(blocks_end - end)
        return blocks_end

    def _ends_with(self, end: int, position: int) -> None:
        """What was written ends there in the buffer and in the file: its last block is kept."""
        rest = end % BLOCK_SIZE
        self._buffer[:rest] = self._buffer[end - rest : end]
        self._end = position

    def _write_synced(self, blocks: memoryview, position: int) -> None:
        """As :meth:`_write`, and ``synced`` says whether it is durable."""
        if self._dsync:
            try:
                count = os.pwritev(self._fd, [blocks], position, self._dsync)
            except OSError as error:
                if error.errno not in _DSYNC_UNSUPPORTED:
                    raise
                self._dsync = 0  # if it is O_DIRECT that the device refuses, the next write says so
            else:
                self.synced = count == len(blocks)
                blocks, position = blocks[count:], position + count
        self._write(blocks, position)

    def _write(self, blocks: memoryview, position: int) -> None:
        count = 0
        while count < len(blocks):
            # What a signal or a full disk cut short ends at a block, or cannot be continued.
            written = os.pwrite(self._fd, blocks[count:], position + count)
            if written == 0:
                raise OSError(errno.EIO, "write made no progress", self._path)
            count += written

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            self.close()


def _whole_blocks(view: memoryview) -> bool:
    if not view or view.readonly or len(view) % BLOCK_SIZE:
        return False  # ctypes tells no address of bytes that must not be written to
    return ctypes.addressof(ctypes.c_char.from_buffer(view)) % BLOCK_SIZE == 0
