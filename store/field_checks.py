"""Checks the types and bounds of decoded fields.

A CRC proves that bytes are those that were written. It does not prove that they make sense. Code
that decodes JSON, MessagePack or text uses these checks. All raise :class:`ValueError` that says
what was found.
"""

from __future__ import annotations

from store.quoting import quoted

U32_MAX = (1 << 32) - 1
I64_MIN = -(1 << 63)
I64_MAX = (1 << 63) - 1
U64_MAX = (1 << 64) - 1


def integer(value: object, low: int = 0, high: int = I64_MAX) -> int:
    """A whole number from ``low`` to ``high``; a boolean is refused."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ValueError(f"{quoted(value)} is no number from {low} to {high}")
    return value


def text(value: object) -> str:
    """Text that can be encoded as UTF-8."""
    if not isinstance(value, str):
        raise ValueError(f"{quoted(value)} is no text")
    value.encode()
    return value


def binary(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError(f"{quoted(value)} is no binary")
    return value


def array(value: object, length: int | None = None) -> list[object]:
    """A list, of ``length`` elements if that is given."""
    if not isinstance(value, list) or (length is not None and len(value) != length):
        what = "array" if length is None else f"array of {length}"
        raise ValueError(f"{quoted(value)} is no {what}")
    return value


def file_name(value: object) -> str:
    """Text that can name a file within a directory: not empty, not ``.`` or ``..``, no ``/``."""
    name = text(value)
    if name in {"", ".", ".."} or "/" in name or "\0" in name:
        raise ValueError(f"{quoted(name)} is no name of a file")
    return name
