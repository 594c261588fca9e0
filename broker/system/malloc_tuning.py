"""Settings of the C library's memory allocator."""

from __future__ import annotations

import ctypes

MMAP_THRESHOLD = 16 << 20
"""Buffers up to this size in bytes come from the heap; each larger one is mapped separately."""

TRIM_THRESHOLD = 64 << 20
"""The free bytes at the end of the heap above which memory goes back to the kernel."""

# malloc.h of glibc
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3


def keep_freed_memory() -> bool:
    """Makes the C library reuse freed buffers instead of returning them to the kernel.

    Requests, entries and frames are buffers of about 100 KiB that live for milliseconds. glibc
    returns such memory as soon as it is free. The next buffer then costs a page fault for every 4
    KiB, which may involve the host of a virtual machine: a tenth to a fifth of all CPU time of
    three nodes under batches. Returns False if the C library has no such settings.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    # Both are set: setting one ends the automatic adjustment of the other.
    mmaps: int = mallopt(_M_MMAP_THRESHOLD, MMAP_THRESHOLD)
    trims: int = mallopt(_M_TRIM_THRESHOLD, TRIM_THRESHOLD)
    return bool(mmaps and trims)
