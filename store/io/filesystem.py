"""The only interface to the operating system's files.

Everything that ``store`` asks of a disk goes through :class:`FileSystem` and :class:`File`, so that
the simulator can lose unsynced writes, tear sectors and fail any call. The real implementation is
``store/io/os_filesystem.py``; the simulated one is ``simulator/engine/disk.py``.

Every method may raise ``OSError``. Paths are plain strings; positions and sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

Bytes: TypeAlias = bytes | bytearray | memoryview

BLOCK_SIZE = 4096
"""Bytes. :meth:`File.append_direct` writes multiples of it; no device has a larger sector."""


class ReadableFile(Protocol):
    """What reading needs of an open file."""

    @property
    def path(self) -> str: ...

    def pread(self, size: int, position: int) -> bytes:
        """Up to ``size`` bytes from ``position``; fewer only where the file ends."""

    def pread_into(self, buffer: memoryview, position: int) -> int:
        """Fills a buffer from ``position`` on; how many bytes, fewer only where the file ends.

        Who reads much reads into the same buffer again and again: fresh memory costs more than
        the copying.
        """

    def size(self) -> int: ...

    def close(self) -> None: ...


class File(ReadableFile, Protocol):
    """One open file. Reads, writes and syncs may run in any thread; writes take turns."""

    def pwrite(self, data: Bytes, position: int) -> None:
        """Writes all of ``data``; a short write is continued, and an error is raised."""

    def append_direct(self, data: Bytes, position: int) -> None:
        """As :meth:`pwrite`, past the page cache where the system can do that.

        For the end of what the file holds: behind ``data``, up to the next multiple of
        :data:`BLOCK_SIZE`, zeros may be written too.
        """

    def allocate(self, size: int, position: int) -> bool:
        """Extends the file to ``position + size`` by bytes that read as zeros and are not written.

        Returns False, without an effect, if the file system cannot do that.
        """

    def begin_append(
        self, data: Bytes, position: int, then: Callable[[OSError | None], None]
    ) -> bool:
        """Begins what :meth:`append_direct` and :meth:`datasync` do together, without waiting.

        ``then`` is called in a later event of the process, with what went wrong or ``None``. A
        ``BlockingIOError`` says that it could not be done so, and that some of it may have been
        written: it is to be done again in the ordinary way. Nothing else may be written to the
        end of the file meanwhile. Returns false if nothing was begun, and nothing will be told.
        """

    def datasync(self) -> None:
        """``fdatasync``: returns only when all bytes written so far survive power loss."""

    def drop_cached(self, size: int, position: int) -> None:
        """Advises that these bytes, once durable, need not stay in the page cache."""

    def truncate(self, size: int) -> None: ...


class Lock(Protocol):
    """An exclusive advisory lock on a file, held until released."""

    def release(self) -> None: ...


class ReadableFileSystem(Protocol):
    """What reading needs of a file system."""

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> ReadableFile:
        """Opens a file; ``FileNotFoundError`` if it is absent and ``create`` is false.

        For reading alone, what is no file (a directory, a pipe) is an ``OSError`` at once.
        """

    def exists(self, path: str) -> bool: ...

    def list_directory(self, path: str) -> list[str]:
        """Names in sorted order; ``FileNotFoundError`` if the directory is absent."""

    def identify(self, path: str) -> str:
        """The same for two paths where both lead to one file or directory, by links or else."""


class FileSystem(ReadableFileSystem, Protocol):
    """The directory operations. A name is durable after :meth:`sync_directory` of its parent."""

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> File: ...

    def write(self, path: str, data: Bytes, position: int) -> None:
        """As :meth:`File.pwrite` of a file that is opened, or created, for this write alone."""

    def make_directories(self, path: str, *, sync: bool = True) -> None:
        """Creates the directory and its parents, and syncs the parent of each one it created,
        unless a :meth:`sync_all` is to follow."""

    def rename(self, source: str, target: str) -> None:
        """Atomically replaces ``target``."""

    def link(self, source: str, target: str) -> None: ...

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None:
        """Removes a directory with all it holds, or a file; nothing happens where it is absent."""

    def sync_directory(self, path: str) -> None: ...

    def sync_all(self, path: str) -> None:
        """Everything below a directory is durable on return, bytes and names: one barrier.

        It may wait for what others wrote to the same disk; for many files it is still far cheaper
        than a sync of each.
        """

    def free_bytes(self, path: str) -> int:
        """What this process may still take of the file system that holds ``path``."""

    def total_bytes(self, path: str) -> int:
        """What the file system holds: taken by anybody, or free for this process."""

    def lock(self, path: str) -> Lock:
        """Takes the lock or raises ``BlockingIOError`` if another process holds it."""
