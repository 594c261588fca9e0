"""Files that are written as a whole or not at all."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """What stood there stays where this cannot be written. Raises ``OSError`` with the path."""
    new = path.with_name(f"{path.name}.new")
    try:
        new.write_text(text, encoding="utf-8")
        new.replace(path)
    except OSError as error:
        with suppress(OSError):
            new.unlink()
        raise OSError(error.errno, error.strerror, str(path)) from error
