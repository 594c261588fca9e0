"""Reads small files. Their names may be anything: a directory, a pipe, a huge file."""

from __future__ import annotations

from contextlib import closing

from crc32c import crc32c

from store.errors import DamagedError, UnreadableError
from store.io.filesystem import ReadableFileSystem
from store.state.checkpoint import (
    CHECKPOINT_HEADER,
    CHECKPOINT_MAGIC,
    Checkpoint,
    decode_checkpoint,
)
from store.verify.files.audit_files import DANGLING, listed_names, may_be_right, reason

SMALL_MAX = 64 << 10
"""Bytes. Format file and manifest have a few hundred."""
PIECE_SIZE = 1 << 20


def read_small(fs: ReadableFileSystem, path: str) -> bytes:
    """All bytes of a small file.

    Raises ``FileNotFoundError`` if there is no such name, and
    :class:`~store.errors.DamagedError` with the reason if it cannot be read.
    """
    data = read_head(fs, path, SMALL_MAX + 1)
    if len(data) > SMALL_MAX:
        raise DamagedError(path, SMALL_MAX, f"more than {SMALL_MAX} bytes, which it cannot have")
    return data


def read_head(fs: ReadableFileSystem, path: str, size: int) -> bytes:
    """The first ``size`` bytes of a file, or all of them. Raises as :func:`read_small`."""
    try:
        with closing(fs.open(path, writable=False)) as file:
            return file.pread(size, 0)
    except (OSError, ValueError) as error:
        raise _unreadable(fs, path, error) from error


def read_checkpoint(fs: ReadableFileSystem, path: str) -> Checkpoint:
    """A checkpoint. A large file is read into memory only if its CRC fits.

    Raises as :func:`read_small`.
    """
    try:
        with closing(fs.open(path, writable=False)) as file:
            size = file.size()
            header = file.pread(CHECKPOINT_HEADER.size, 0)
            if size > PIECE_SIZE and len(header) == CHECKPOINT_HEADER.size:
                magic, _version, crc, length = CHECKPOINT_HEADER.unpack(header)
                if magic != CHECKPOINT_MAGIC or size != CHECKPOINT_HEADER.size + length:
                    stated = f"{length} bytes of payload stated, file of {size} bytes"
                    raise DamagedError(path, 12, stated)
                found = crc32c(header[12:])
                for at in range(CHECKPOINT_HEADER.size, size, PIECE_SIZE):
                    found = crc32c(file.pread(min(PIECE_SIZE, size - at), at), found)
                if found != crc:
                    raise DamagedError(path, 8, "CRC of the checkpoint")
            return decode_checkpoint(file.pread(size, 0), path)
    except (OSError, ValueError) as error:
        raise _unreadable(fs, path, error) from error


def _unreadable(fs: ReadableFileSystem, path: str, error: Exception) -> Exception:
    """The error to raise in place of one of the file system."""
    why = reason(error)
    if isinstance(error, FileNotFoundError):
        directory, _slash, name = path.rpartition("/")
        if name not in listed_names(fs, directory):
            return error
        why = DANGLING
    made = UnreadableError if may_be_right(error) else DamagedError
    return made(path, 0, f"cannot be read: {why}")
