"""How the C library of a server gives memory back."""

from __future__ import annotations

import ctypes

MMAP_THRESHOLD = 16 << 20
"""Buffers up to this size, in bytes, come from the heap; each larger one is mapped by itself."""

TRIM_THRESHOLD = 64 << 20
"""How much memory may be free at the end of the heap before it is given back, in bytes."""

# malloc.h of glibc
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3


def keep_freed_memory() -> bool:
    """Lets the C library use freed buffers again instead of returning them to the kernel.

    Requests, entries and frames are buffers of some 100 KiB that live for milliseconds. glibc gives
    such memory back as soon as it is free. The next buffer then costs a page fault for every 4 KiB,
    which a virtual machine may have to take to its host: a tenth to a fifth of all CPU time of
    three nodes under batches. False if the C library has no such settings.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    # Both: setting one ends the adjusting of the other by what was freed so far.
    mmaps: int = mallopt(_M_MMAP_THRESHOLD, MMAP_THRESHOLD)
    trims: int = mallopt(_M_TRIM_THRESHOLD, TRIM_THRESHOLD)
    return bool(mmaps and trims)
