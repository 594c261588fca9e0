"""Limits what the kernel keeps for a connection whose peer does not read.

By default it keeps megabytes for each connection. They are copied while the event loop waits, and
no budget of this process counts them. Some hundred such connections use up the kernel's memory for
all TCP connections, and then the others stand still too.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from typing import Protocol

UNSENT_MAX = getattr(socket, "TCP_NOTSENT_LOWAT", None)
"""Not every system has it."""


class ListeningSocket(Protocol):
    """The used part of a socket."""

    def setsockopt(self, level: int, option: int, value: int, /) -> None: ...


def limit_unsent(listening: Iterable[ListeningSocket], size: int) -> None:
    """Of each connection that is accepted from now on: no more than about ``size`` bytes that have
    not been sent. How much may be on its way at a time is not limited."""
    if UNSENT_MAX is not None:
        for each in listening:  # those that they accept inherit it
            each.setsockopt(socket.IPPROTO_TCP, UNSENT_MAX, size)
