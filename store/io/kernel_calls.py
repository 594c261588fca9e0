"""System calls that the C library does not wrap."""

from __future__ import annotations

import ctypes
import os

IN_FLIGHT_MAX = 8
"""Writes that the kernel has at once."""

DSYNC: int = getattr(os, "RWF_DSYNC", 0)
NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)

system_call = ctypes.CDLL(None, use_errno=True).syscall
"""``long syscall(long number, ...)``; arguments are ``ctypes.c_long`` or pointers."""
system_call.restype = ctypes.c_long


def open_event_fd() -> int | None:
    """A descriptor that becomes readable when the kernel adds to it; ``None`` if there is no free
    one."""
    try:
        return os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    except OSError:
        return None
