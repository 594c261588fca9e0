"""How much a kernel keeps of what is written to a connection whose peer does not read.

Left alone, it keeps megabytes of each. They are copied while the event loop waits, and stand in no
budget of this process: some hundred connections use up what the kernel has for all its streams, and
then the others stand still as well.
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
