"""Shortens what clients and peers sent before it goes into errors and log lines.

A client chooses how long a field is, and how often it is wrong. An error that repeats such a field
uses :func:`quoted`. An error that repeats the text of another error uses :func:`shortened`. A log
line that a client can cause has ``extra=FROM_OUTSIDE``: the log then shows one line of its kind in
ten seconds (:mod:`broker.system.log_lines`).
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Final

QUOTED_MAX = 120
"""Characters of one quoted value."""

TEXT_MAX = 500
"""Characters of a text that may itself contain quoted values."""

FROM_OUTSIDE: Final[Mapping[str, object]] = {"from_outside": True}
"""``extra`` of a log line that anybody on the network can cause as often as they like."""


class _Repr(reprlib.Repr):
    """As ``repr``, but it reads only what it shows."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 3
        self.maxlist = self.maxtuple = self.maxset = self.maxfrozenset = self.maxdict = 6
        self.maxlong = 40

    def repr_int(self, x: int, level: int) -> str:
        bits = x.bit_length()
        return super().repr_int(x, level) if bits <= QUOTED_MAX else f"a number of {bits} bits"

    def repr_str(self, x: str, level: int) -> str:  # noqa: ARG002 - reprlib calls it so
        return _cut(x)

    def repr_bytes(self, x: bytes, level: int) -> str:  # noqa: ARG002 - reprlib calls it so
        return _cut(x)

    def repr_bytearray(self, x: bytearray, level: int) -> str:  # noqa: ARG002 - reprlib calls it so
        return _cut(bytes(x[: QUOTED_MAX + 1]), len(x))

    def repr_memoryview(self, x: memoryview, level: int) -> str:  # noqa: ARG002 - reprlib calls it so
        return _cut(bytes(x[: QUOTED_MAX + 1]), x.nbytes)


_repr = _Repr()


def quoted(value: object) -> str:
    """``repr(value)``; if that is long, its beginning and its length."""
    text = _repr.repr(value)
    return text if len(text) <= 4 * QUOTED_MAX else f"{text[:QUOTED_MAX]}..."


def shortened(text: object) -> str:
    """A text such as that of an error; if it is long, its beginning and its length."""
    text = str(text)
    if len(text) <= TEXT_MAX:
        return text
    return f"{text[:TEXT_MAX]}... ({len(text)} characters)"


def _cut(value: str | bytes, size: int | None = None) -> str:
    size = len(value) if size is None else size
    text = repr(value[:QUOTED_MAX])
    if size <= QUOTED_MAX and len(text) <= 2 * QUOTED_MAX:
        return text
    unit = "characters" if isinstance(value, str) else "bytes"
    return f"{text[:QUOTED_MAX]}... ({size} {unit})"
