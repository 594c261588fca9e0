"""The real file system: a thin layer on ``os``, and the only module that calls it for files."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import shutil
import stat
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from store.io.async_io import WriteSubmitter
from store.io.descriptor_reserve import DescriptorReserve
from store.io.direct_io import DirectWriter, OpenFile
from store.io.filesystem import BLOCK_SIZE, Bytes

T = TypeVar("T")

LOCK_SECONDS = 3.0
LOCK_PAUSE_SECONDS = 0.002
"""How long a lock is waited for, and the pause between two tries, in seconds. The kernel keeps the
lock of a killed process until its last write has ended: 25 ms or more."""

_LOOK_SECONDS = 0.1
"""How often who waits for his turn to write looks whether the file was closed meanwhile."""
_FADVISE = getattr(os, "posix_fadvise", None)  # macOS has none, and so keeps what it likes


class OsFile:
    """An open descriptor. It closes itself with its last reference.

    A segment may expire while another thread reads it: the log then only lets go of the file, and
    the descriptor lives until that read is done. Closing it at once could make the reader read
    whatever file gets the same descriptor number next.
    """

    __slots__ = (
        "_changes",
        "_counting",
        "_direct",
        "_direct_tried",
        "_fd",
        "_open_file",
        "_path",
        "_synced",
        "_turn",
        "_writes",
    )

    def __init__(
        self,
        path: str,
        fd: int,
        writes: WriteSubmitter | None = None,
        open_file: OpenFile | None = None,
    ) -> None:
        self._path = path
        self._open_file = open_file
        self._writes = writes
        self._fd = fd
        self._direct: DirectWriter | None = None
        self._direct_tried = False
        self._turn = threading.Lock()
        """Held while something is written. A write past the page cache and one through it may touch
        the same page, and one must not fill that page while the other is in progress."""
        self._counting = threading.Lock()
        self._changes = 1  # others may have written to it
        self._synced = 0

    @property
    def path(self) -> str:
        return self._path

    def pread(self, size: int, position: int) -> bytes:
        data = os.pread(self._fd, size, position)
        if len(data) == size or not data:
            return data
        parts = [data]
        missing = size - len(data)
        while missing:
            part = os.pread(self._fd, missing, position + size - missing)
            if not part:
                break
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    def pread_into(self, buffer: memoryview, position: int) -> int:
        count = os.preadv(self._fd, [buffer], position)
        if count in {0, len(buffer)}:
            return count
        while part := os.preadv(self._fd, [buffer[count:]], position + count):
            count += part
        return count

    def pwrite(self, data: Bytes, position: int) -> None:
        self._take_turn()
        try:
            self._write(data, position)
        finally:
            self._turn.release()
            self._changed()

    def _take_turn(self) -> None:
        while not self._turn.acquire(timeout=_LOOK_SECONDS):
            if self._fd < 0:  # and whoever would tell of the write under way may be gone
                raise OSError(errno.EBADF, os.strerror(errno.EBADF), self._path)

    def _write(self, data: Bytes, position: int) -> None:
        if self._direct is not None:
            self._direct.forget()
        _write(self._path, self._fd, data, position)

    def append_direct(self, data: Bytes, position: int) -> None:
        if not self._direct_tried:
            self._direct_tried = True
            self._direct = DirectWriter.open(self._path, self._open_file)
        direct = self._direct
        if direct is not None:
            self._take_turn()
            try:
                before = b""
                if not direct.continues(position):
                    size = position % BLOCK_SIZE
                    before = self.pread(size, position - size).ljust(size, b"\0")
                done = direct.append(data, position, before)
            finally:
                self._turn.release()
            if done:
                if not direct.synced:
                    self._changed()
                return
            self._direct = None
        self.pwrite(data, position)

    def allocate(self, size: int, position: int) -> bool:
        # Not os.posix_fallocate: where the file system cannot, it would write into each block.
        if _FALLOCATE is None:
            return False
        if _FALLOCATE(self._fd, 0, ctypes.c_int64(position), ctypes.c_int64(size)) != 0:
            error = ctypes.get_errno()
            if error in {errno.ENOSPC, errno.EDQUOT, errno.EIO}:
                raise OSError(error, os.strerror(error), self._path)
            return False  # not supported, forbidden, or interrupted
        self._changed()
        return True

    def begin_append(
        self, data: Bytes, position: int, then: Callable[[OSError | None], None]
    ) -> bool:
        direct = self._direct
        if self._writes is None or direct is None or not self._turn.acquire(blocking=False):
            return False

        def ended(error: OSError | None) -> None:
            self._turn.release()
            then(error)

        begun = False
        try:
            begun = (
                direct.continues(position)
                and self._synced == self._changes  # or there is more to sync than this write
                and direct.begin(self._writes, data, position, ended)
            )
        finally:
            if not begun:
                self._turn.release()
        return begun

    def datasync(self) -> None:
        changes = self._changes
        if changes > self._synced:
            os.fdatasync(self._fd)
            with self._counting:
                self._synced = max(self._synced, changes)

    def _changed(self) -> None:
        """Something was written. Counted when it is: threads write and sync the same file, and a
        sync speaks for what was counted before it began."""
        with self._counting:
            self._changes += 1

    def drop_cached(self, size: int, position: int) -> None:
        if _FADVISE is not None:
            _FADVISE(self._fd, position, size, os.POSIX_FADV_DONTNEED)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)
        self._changed()

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
        if self._direct is not None:
            self._direct.close()

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            self.close()


def _write(path: str, fd: int, data: Bytes, position: int) -> None:
    """Writes all of it."""
    count = os.pwrite(fd, data, position)
    if count == len(data):
        return
    view = memoryview(data)
    while count < len(view):
        written = os.pwrite(fd, view[count:], position + count)
        if written == 0:
            raise OSError(errno.EIO, "write made no progress", path)
        count += written


_LIBC = ctypes.CDLL(None, use_errno=True)
_SYNCFS = getattr(_LIBC, "syncfs", None)
"""``int syncfs(int fd)``: all of the file system that holds the file."""
_FALLOCATE = getattr(_LIBC, "fallocate64", None)
"""``int fallocate64(int fd, int mode, off64_t offset, off64_t len)``."""


class OsLock:
    """An ``flock``: the kernel drops it after the process, however that ends, and after its last
    write."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            # Others may hold the file open: see OsFileSystem.lock.
            fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)


def _regular(path: str, fd: int) -> int:
    """The descriptor, if it is one of a file; closes it if not."""
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode):
        return fd
    os.close(fd)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    raise OSError(errno.EINVAL, "Not a regular file", path)


class OsFileSystem:
    """The operating system's files. See :class:`~store.io.filesystem.FileSystem`.

    ``writes`` does what :meth:`OsFile.begin_append` begins; without it nothing is. ``reserve`` has
    descriptors for files if there are no others left; without it an ``OSError`` tells that.
    """

    def __init__(
        self, writes: WriteSubmitter | None = None, reserve: DescriptorReserve | None = None
    ) -> None:
        self._writes = writes
        self._reserve = reserve
        self._open_file = None if reserve is None else reserve.open

    def _open(self, path: str, flags: int, mode: int = 0o777) -> int:
        if self._reserve is None:
            return os.open(path, flags, mode)
        return self._reserve.open(path, flags, mode)

    def _attempt(self, path: str, opening: Callable[[], T]) -> T:
        return opening() if self._reserve is None else self._reserve.attempt(path, opening)

    def close(self) -> None:
        """Gives up what is in reserve."""
        if self._reserve is not None:
            self._reserve.close()

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> OsFile:
        if not writable and not create:
            # Other files are refused at once: to open a pipe waits for who writes.
            fd = self._open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            return OsFile(path, _regular(path, fd), self._writes)
        flags = (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC
        if create:
            flags |= os.O_CREAT
        fd = _regular(path, self._open(path, flags, 0o644))
        return OsFile(path, fd, self._writes, self._open_file)

    def write(self, path: str, data: Bytes, position: int) -> None:
        # A checkpoint may write very many small files: each call of the system counts here.
        # A pipe that nobody reads is refused, and not waited for.
        flags = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
        fd = self._open(path, flags, 0o644)
        try:
            _write(path, fd, data, position)
        finally:
            os.close(fd)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def list_directory(self, path: str) -> list[str]:
        return sorted(self._attempt(path, lambda: os.listdir(path)))

    def identify(self, path: str) -> str:
        try:
            status = os.stat(path)
        except OSError:
            return os.path.abspath(path)
        return f"{status.st_dev}:{status.st_ino}"

    def make_directories(self, path: str, *, sync: bool = True) -> None:
        try:
            os.mkdir(path, 0o755)
        except FileNotFoundError:
            self.make_directories(os.path.dirname(os.path.abspath(path)), sync=sync)
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, 0o755)
        except OSError:  # also EACCES or EROFS, where a file system says that of what exists
            if os.path.isdir(path):
                return
            raise
        if sync:
            self.sync_directory(os.path.dirname(os.path.abspath(path)))

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def link(self, source: str, target: str) -> None:
        os.link(source, target)

    def remove(self, path: str) -> None:
        os.remove(path)

    def remove_tree(self, path: str) -> None:
        try:
            self._attempt(path, lambda: shutil.rmtree(path))
        except FileNotFoundError:
            pass
        except NotADirectoryError:
            os.remove(path)

    def sync_directory(self, path: str) -> None:
        fd = self._open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_all(self, path: str) -> None:
        # Linux tells of failed writes since 5.8. Where there is no syncfs, sync says nothing of
        # them: what is written so is derived, checksummed or compared, and can be made again.
        if _SYNCFS is None:
            os.sync()
            return
        fd = self._open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if _SYNCFS(fd) != 0:
                error = ctypes.get_errno()
                raise OSError(error, os.strerror(error), path)
        finally:
            os.close(fd)

    def free_bytes(self, path: str) -> int:
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize

    def total_bytes(self, path: str) -> int:
        status = os.statvfs(path)
        return (status.f_blocks - status.f_bfree + status.f_bavail) * status.f_frsize

    def lock(self, path: str) -> OsLock:
        fd = self._open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        give_up_at = time.monotonic() + LOCK_SECONDS
        try:
            while True:
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= give_up_at:
                        raise
                time.sleep(LOCK_PAUSE_SECONDS)
        except OSError:
            os.close(fd)
            raise
        if self._writes is not None:
            self._writes.hold(fd)
        return OsLock(fd)
