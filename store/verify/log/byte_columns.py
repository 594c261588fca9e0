"""Bytes at many places at once: rows of one width, whatever lies there."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
from numpy.typing import NDArray

Octets = NDArray[np.uint8]
Numbers = NDArray[np.int64]
Words = NDArray[np.uint32]

WIDTHS = (16, 32, 64, 128)
"""Of texts that are looked at side by side; longer ones are taken one by one."""

ROWS_AT_ONCE = 4096
"""What is made of so many rows stays in the processor's cache."""


def gather(octets: Octets, starts: Numbers, width: int) -> Octets:
    """``width`` bytes from each of the places on, a row each; zeros where ``octets`` have ended."""
    room = len(octets) - width
    if room < 0:
        octets = np.concatenate((octets, np.zeros(-room, np.uint8)))
        room = 0
    over = np.flatnonzero(starts > room)
    windows = np.ndarray((room + 1,), f"V{width}", octets, strides=(1,))
    inside = np.minimum(starts, room) if len(over) else starts
    found = windows[inside].view(np.uint8).reshape(len(starts), width)
    for number in over.tolist():  # no more than fit into so few bytes
        rest = octets[int(starts[number]) :]
        found[number, : len(rest)] = rest
        found[number, len(rest) :] = 0
    return found


def texts_before(octets: Octets, ends: Numbers, sizes: Numbers, width: int) -> Octets:
    """Texts of ``width`` bytes at most, each a row that it ends with; zeros are before it.

    There must be ``width`` bytes before each end.
    """
    rows = gather(octets, ends - width, width)
    if sizes.min(initial=width) < width:
        masked = rows.view(np.uint64).ravel()
        masked &= _last_bytes(width)[sizes].view(np.uint64)
    return rows


def texts_after(octets: Octets, starts: Numbers, sizes: Numbers, width: int) -> Octets:
    """Texts of ``width`` bytes at most (a multiple of 8), each a row that it begins."""
    rows = gather(octets, starts, width)
    masked = rows.view(np.uint64).ravel()
    masked &= _first_bytes(width)[sizes].view(np.uint64)
    return rows


@cache
def _last_bytes(width: int) -> NDArray[np.void]:
    """Number *n* keeps the last *n* bytes of a row."""
    kept = np.arange(width) >= width - np.arange(width + 1)[:, None]
    return np.where(kept, np.uint8(0xFF), np.uint8(0)).view(f"V{width}").ravel()


@cache
def _first_bytes(width: int) -> NDArray[np.void]:
    kept = np.arange(width) < np.arange(width + 1)[:, None]
    return np.where(kept, np.uint8(0xFF), np.uint8(0)).view(f"V{width}").ravel()


def by_width(sizes: Numbers) -> Iterator[tuple[int, Numbers]]:
    """The least of :data:`WIDTHS` that each size fits into, and numbers of such sizes.

    Those above all widths come under width 0.
    """
    low = -1
    most = int(sizes.max(initial=-1))
    for width in (*WIDTHS, 0):
        if low >= most:
            break
        members = np.flatnonzero((sizes > low) & (sizes <= width) if width else sizes > low)
        for first in range(0, len(members), ROWS_AT_ONCE):
            yield width, members[first : first + ROWS_AT_ONCE]
        low = width
