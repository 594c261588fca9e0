"""A limit for JSON before it is parsed: parsing cannot be interrupted, and takes 0.3 µs for each
part."""

from __future__ import annotations

BYTES_MAX = 50
"""Setting: the bytes that JSON may have for each allowed mark. Counting the marks of longer text
would take long, too."""

_MARKS = (b"{", b"[", b":", b",")


def check_marks(data: bytes, marks_max: int) -> None:
    """Raises ``ValueError`` for JSON with more than ``marks_max`` braces, brackets, colons and
    commas outside its strings, and for JSON with more than ``BYTES_MAX`` bytes for each of them."""
    if len(data) <= marks_max:
        return
    if len(data) > BYTES_MAX * marks_max:
        raise ValueError(f"it has {len(data)} bytes, at most {BYTES_MAX * marks_max} are allowed")
    if _marks(data) <= marks_max:
        return
    ended = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    if ended.count(b'"') > 2 * marks_max or _marks(b"".join(ended.split(b'"')[::2])) > marks_max:
        raise ValueError(f"it has more than {marks_max} braces, brackets, colons and commas")


def _marks(data: bytes) -> int:
    return sum(map(data.count, _MARKS))
