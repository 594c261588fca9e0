"""Reads bytes at many places at once into rows of one width, and layouts as columns."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from struct import Struct

import numpy as np
from numpy.typing import NDArray

Octets = NDArray[np.uint8]
Numbers = NDArray[np.int64]
Words = NDArray[np.uint32]

WIDTHS = (16, 32, 64, 128)
"""Texts up to these sizes are handled many at once, longer texts one by one."""

ROWS_AT_ONCE = 4096
"""The results of this many rows stay in the processor's cache."""

ROWS_JOINED = 32
"""How many rows :func:`differing_columns` compares at once."""

_TYPES = {"i": ">i4", "q": ">i8", "I": ">u4", "B": "u1"}


def columns_of(layout: Struct, names: str) -> np.dtype[np.void]:
    """The fields of a big-endian layout as columns of these names."""
    fields = re.findall(r"(\d*)([a-zA-Z])", layout.format)
    types = [f"V{count}" if kind == "s" else _TYPES[kind] for count, kind in fields]
    found = np.dtype(list(zip(names.split(), types, strict=True)))
    if found.itemsize != layout.size:
        raise ValueError(f"{names}: {found.itemsize} bytes are not the {layout.size} of the layout")
    return found


def gather(octets: Octets, starts: Numbers, width: int) -> Octets:
    """A row of ``width`` bytes from each start on, with zeros behind the end of ``octets``."""
    room = len(octets) - width
    if room < 0:
        octets = np.concatenate((octets, np.zeros(-room, np.uint8)))
        room = 0
    over = np.flatnonzero(starts > room) if starts.max(initial=0) > room else starts[:0]
    windows = np.ndarray((room + 1,), f"V{width}", octets, strides=(1,))
    inside = np.minimum(starts, room) if len(over) else starts
    found = windows[inside].view(np.uint8).reshape(len(starts), width)
    for number in over.tolist():  # no more than fit into so few bytes
        rest = octets[int(starts[number]) :]
        found[number, : len(rest)] = rest
        found[number, len(rest) :] = 0
    return found


def texts_before(octets: Octets, ends: Numbers, sizes: Numbers, width: int) -> Octets:
    """Texts of at most ``width`` bytes, each at the end of a row with zeros before it.

    There must be ``width`` bytes before each end.
    """
    rows = gather(octets, ends - width, width)
    if sizes.min(initial=width) < width:
        masked = rows.view(np.uint64).ravel()
        masked &= _last_bytes(width)[sizes].view(np.uint64)
    return rows


def texts_after(octets: Octets, starts: Numbers, sizes: Numbers, width: int) -> Octets:
    """Texts of at most ``width`` bytes (a multiple of 8), each at the beginning of a row."""
    rows = gather(octets, starts, width)
    masked = rows.view(np.uint64).ravel()
    masked &= _first_bytes(width)[sizes].view(np.uint64)
    return rows


def differing_columns(rows: Octets) -> Numbers:
    """The columns in which not all rows are equal."""
    count, width = rows.shape
    # Many rows at once, because NumPy takes as long for a short row as for a long one.
    whole = count - count % ROWS_JOINED
    joined = rows[:whole].reshape(-1, ROWS_JOINED * width) ^ np.tile(rows[0], ROWS_JOINED)
    found = np.bitwise_or.reduce(joined, axis=0).reshape(ROWS_JOINED, width)
    found = np.concatenate((found, rows[whole:] ^ rows[0]))
    return np.flatnonzero(np.bitwise_or.reduce(found, axis=0))


@cache
def _last_bytes(width: int) -> NDArray[np.void]:
    """Masks: number *n* keeps the last *n* bytes of a row."""
    kept = np.arange(width) >= width - np.arange(width + 1)[:, None]
    return np.where(kept, np.uint8(0xFF), np.uint8(0)).view(f"V{width}").ravel()


@cache
def _first_bytes(width: int) -> NDArray[np.void]:
    kept = np.arange(width) < np.arange(width + 1)[:, None]
    return np.where(kept, np.uint8(0xFF), np.uint8(0)).view(f"V{width}").ravel()


def by_width(sizes: Numbers) -> Iterator[tuple[int, Numbers]]:
    """Groups sizes by the smallest of :data:`WIDTHS` that holds them: the width, and the numbers of
    these sizes. Larger sizes have width 0.
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
