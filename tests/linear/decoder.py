"""The properties of a decoder that is to be fed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple


class Decoder(NamedTuple):
    """``read`` gets the beginning, so many units, and the end, of each shape."""

    name: str
    read: Callable[[bytes], object]
    shapes: Sequence[tuple[bytes, bytes, bytes]]


LETTERS = [(b"", b"a", b"")]
