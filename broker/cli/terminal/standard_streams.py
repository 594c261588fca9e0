"""The three standard streams: opened if they are missing, and ended without a traceback."""

from __future__ import annotations

import errno
import io
import os
import sys

STDIN, STDOUT, STDERR = 0, 1, 2
NAME_MAX = 255

_UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EAGAIN})
"""Errors of a write without room or with a failed disk. EAGAIN: the stream does not block, and its
reader is slow."""


def open_missing_streams() -> None:
    """Opens ``/dev/null`` for standard streams that the parent closed.

    Otherwise the next file or socket would get the descriptor of a standard stream, and the event
    loop would refuse to close it.
    """
    while (fd := os.open(os.devnull, os.O_RDWR)) <= STDERR:  # always the lowest free descriptor
        os.set_inheritable(fd, True)
    os.close(fd)
    if sys.stdin is None:
        sys.stdin = os.fdopen(STDIN, "r")
    if sys.stdout is None:
        sys.stdout = os.fdopen(STDOUT, "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(STDERR, "w")


def buffer_output() -> None:
    """Gives stdout a buffer even if ``PYTHONUNBUFFERED`` is set.

    Without a buffer a write is one system call, which may write a part of the bytes without an
    error: messages would be acknowledged without being printed. Output that must be seen at once is
    flushed.
    """
    plain = sys.stdout
    if isinstance(plain.buffer, io.RawIOBase):
        sys.stdout = open(  # noqa: SIM115 - it stays open until the end
            STDOUT, "w", encoding=plain.encoding, errors=plain.errors, closefd=False
        )


def drop_output() -> None:
    """Drops the rest of the output, which nobody can read: otherwise Python's flush at the end
    would fail again."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, STDOUT)
    os.close(null)


def unwritable(error: OSError) -> str | None:
    """The text of an error of :data:`WRITE_ERRORS`; otherwise None."""
    if error.errno not in _UNWRITABLE:
        return None
    where = "what it prints" if error.filename is None else error.filename
    return f"cannot write {where}: {error.strerror}"


def unusable(error: OSError) -> str | None:
    """The text of an error that names a file; otherwise None."""
    if error.filename is None:
        return None
    name = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else ""
    shown = name if name.isprintable() and len(name) <= NAME_MAX else f"{name[:NAME_MAX]!a}..."
    return f"{shown} cannot be used: {error.strerror}"
