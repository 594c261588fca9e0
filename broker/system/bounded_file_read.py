"""Reads short files of unknown content."""

from __future__ import annotations

import errno
import os
import stat


def read_bounded(path: str, bytes_max: int) -> bytes:
    """The bytes of a regular file.

    Raises ``OSError``, with a reason for the user, if it cannot be read, is longer than
    ``bytes_max``, or is not a regular file: reading a pipe would wait.
    """
    if "\0" in path:
        raise OSError(errno.EINVAL, "its name has a zero byte", path)
    # O_NONBLOCK: a pipe without a writer is opened at once, and then found to be a pipe.
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, "rb") as file:
        found = os.fstat(fd)
        if stat.S_ISDIR(found.st_mode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", path)
        data = file.read(bytes_max + 1)
    if len(data) > bytes_max:
        raise OSError(errno.EFBIG, f"it is longer than {bytes_max} bytes", path)
    return data
