"""Bits that flip in a frame on its way: in its CRC, in its head, anywhere; one, or a burst of them.

A CRC32C finds one to three flipped bits in frames of these sizes, and each burst of up to 32 bits
(Koopman 2002). So a frame with such flipped bits is never taken for a message.
"""

from __future__ import annotations

from random import Random

HEAD_BYTES = 12
"""The CRC, and the kind and first fields of a message."""

BURST_BITS_MAX = 32


def flipped(frame: bytes, rng: Random) -> bytes:
    """The frame with one to three bits flipped, or a burst of them; never unchanged."""
    bits = 8 * len(frame)
    within = rng.choice((bits, bits, min(bits, 8 * HEAD_BYTES)))
    if rng.random() < 0.3:
        first = rng.randrange(within)
        length = min(rng.randint(2, BURST_BITS_MAX), bits - first)
        mask = rng.getrandbits(length) | 1 << (length - 1)
        places = [first + at for at in range(length) if mask >> at & 1]
    else:
        places = rng.sample(range(within), min(rng.randint(1, 3), within))
    damaged = bytearray(frame)
    for place in places:
        damaged[place // 8] ^= 1 << place % 8
    return bytes(damaged)
