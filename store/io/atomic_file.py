"""Small files that are read and replaced as a whole: a crash leaves the old one or the new one."""

from __future__ import annotations

from store.errors import DamagedError
from store.io.filesystem import Bytes, FileSystem, ReadableFileSystem
from store.io.unreadable_blocks import UNREADABLE

TEMPORARY_SUFFIX = ".tmp"


def replace_file(fs: FileSystem, directory: str, name: str, data: Bytes) -> None:
    """Durably makes ``data`` the content of ``directory/name``.

    The bytes are synced under a temporary name before the rename, and the rename is synced with
    its directory: at no moment does the name stand for less than a whole file.
    """
    path = f"{directory}/{name}"
    temporary = path + TEMPORARY_SUFFIX
    file = fs.open(temporary, create=True)
    try:
        file.truncate(0)
        file.pwrite(data, 0)
        file.datasync()
    finally:
        file.close()
    fs.rename(temporary, path)
    fs.sync_directory(directory)


def list_finished(fs: FileSystem, directory: str) -> list[str]:
    """The names in a directory. Files that a crash left unfinished are removed."""
    names = fs.list_directory(directory)
    for name in names:
        if name.endswith(TEMPORARY_SUFFIX):
            fs.remove(f"{directory}/{name}")
    return [name for name in names if not name.endswith(TEMPORARY_SUFFIX)]


def read_file(fs: ReadableFileSystem, path: str) -> bytes:
    """All bytes of a file; ``FileNotFoundError`` if it is absent."""
    file = fs.open(path, writable=False)
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()


def read_checked_file(fs: FileSystem, path: str) -> bytes:
    """As :func:`read_file`, for what has a checksum: bytes that the disk cannot read are damage.

    Raises :class:`~store.errors.DamagedError`.
    """
    try:
        return read_file(fs, path)
    except OSError as error:
        if error.errno not in UNREADABLE:
            raise
        raise DamagedError(path, 0, f"cannot be read: {error}") from error
