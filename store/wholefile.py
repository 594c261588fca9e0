"""Small files that are read whole and replaced whole, so that a crash leaves the old or the new."""

from __future__ import annotations

from store.filesystem import Bytes, FileSystem, Readable

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


def read_file(fs: Readable, path: str) -> bytes:
    """All bytes of a file; ``FileNotFoundError`` where it is absent."""
    file = fs.open(path, writable=False)
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()
