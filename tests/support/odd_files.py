"""Makes other things in the place of a small file."""

from __future__ import annotations

import os
from pathlib import Path

ODD_FILES = {
    "huge": b"x" * (1 << 20),
    "bytes": b"\xff\xfe\x00\x80",
    "digits": b"9" * 99,
    "negative": b"-1 0 0",
    "empty": b"",
    "nested": b"a = " + b"[" * 3000 + b"]" * 3000,
}


def make_odd_file(path: Path, kind: str) -> None:
    """A FIFO that nobody writes to, a directory, a link to itself, or one of :data:`ODD_FILES`."""
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path)
    else:
        path.write_bytes(ODD_FILES[kind])
