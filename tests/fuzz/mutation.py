"""Makes inputs that are nearly right: right ones with a few changes."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

WORDS = (
    b"\x00",
    b"\xff" * 4,
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\x00\x00\x00\x01",
    b"\x01",
    b"\x02",
    b"-1",
    b"9223372036854775808",
    b"1e999",
    b"NaN",
    b"null",
    b"{}",
    b"[]",
    b'"',
    b"\\u0000",
    b"\xed\xa0\x80",
    b"%",
    b"||",
    b"'",
    b"(",
    b"../",
    b"\r\n",
)
"""Bytes that some decoder treats in a special way, and edges of numbers."""

CHANGES_MAX = 4
PIECE_MAX = 64


def mutated(rng: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """``data`` with a few changes. Sometimes a part of ``others`` is put into it."""
    found = bytearray(data)
    for _ in range(rng.randint(1, CHANGES_MAX)):
        at = rng.randint(0, len(found))
        end = min(len(found), at + rng.randint(1, rng.choice((1, 8, PIECE_MAX))))
        kind = rng.randrange(7)
        if kind == 0:
            found[at:at] = rng.choice(WORDS)
        elif kind == 1:
            found[at:end] = rng.choice(WORDS)
        elif kind == 2:
            del found[at:end]
        elif kind == 3:
            found[at:at] = found[at:end] * rng.randint(1, 9)
        elif kind == 4 and at < len(found):
            found[at] ^= 1 << rng.randrange(8)
        elif kind == 5:
            other = rng.choice(others)
            start = rng.randint(0, len(other))
            found[at:at] = other[start : start + PIECE_MAX]
        elif kind == 6:
            found[at:end] = rng.randbytes(end - at)
    return bytes(found)
