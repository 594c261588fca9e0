"""Files that are written completely or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def open_nonblocking(path: str, flags: int) -> int:
    """For ``open(opener=...)``: a pipe instead of a file is an error, instead of a wait."""
    fd = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    os.set_blocking(fd, True)
    return fd


def write_atomically(path: Path, text: str) -> None:
    """Writes a file. If that fails, the old file stays. Raises ``OSError`` with the path."""
    new = path.with_name(f"{path.name}.new")
    try:
        new.unlink(missing_ok=True)  # also a pipe, which would block a reader
        new.write_text(text, encoding="utf-8")
        new.replace(path)
    except OSError as error:
        with suppress(OSError):
            new.unlink()
        raise OSError(error.errno, error.strerror, str(path)) from error
