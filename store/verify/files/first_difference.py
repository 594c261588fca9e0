"""The first difference of two byte strings."""

from __future__ import annotations

import numpy as np

from store.io.filesystem import Bytes


def first_difference(one: Bytes, other: Bytes) -> int:
    """The number of the first byte that differs; else the shorter length."""
    size = min(len(one), len(other))
    differs = np.frombuffer(one, np.uint8, size) != np.frombuffer(other, np.uint8, size)
    return int(np.argmax(differs)) if differs.any() else size
