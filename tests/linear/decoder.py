"""A decoder to be tested, and the errors that it may raise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

ROOMS = frozenset(("broker", "dledger", "store"))


class Decoder(NamedTuple):
    """``read`` gets an input of each shape: its beginning, a number of units, its end."""

    name: str
    read: Callable[[bytes], object]
    shapes: Sequence[tuple[bytes, bytes, bytes]]


LETTERS = [(b"", b"a", b"")]


def is_refusal(error: Exception) -> bool:
    """Whether a decoder may raise this for what it cannot read.

    It may raise ``ValueError`` and errors of the product. Any other error, such as ``KeyError`` or
    ``struct.error``, is a defect: no caller catches it.
    """
    return isinstance(error, ValueError) or type(error).__module__.partition(".")[0] in ROOMS
