"""Memory that the check reads into, used again and again.

A read that needs no fresh memory is worth more than a mapping of the files. A mapping would also
take the process down where a file is cut short.
"""

from __future__ import annotations

import numpy as np

from store.log.log_reader import WINDOW_SIZE

PIECE_SIZE = 512 << 10
PAGE_SIZE = 4096


class Buffer:
    """Memory that files are read into, ``size`` bytes at once."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.octets = bytearray(size + PAGE_SIZE)
        self._address = int(np.frombuffer(self.octets, np.uint8).__array_interface__["data"][0])

    def place(self, position: int) -> int:
        """Where in ``octets`` to put what begins at ``position`` of a file.

        Half a page apart from where it is in the page of the cache: processors with fast short
        copies take six times as long (seen on Zen 3) where a target lies 1 to 31 bytes further in
        its page than the source.
        """
        return (position + PAGE_SIZE // 2 - self._address) % PAGE_SIZE


class Buffers:
    """Memory for reading, kept from range to range. One thread at a time."""

    def __init__(self) -> None:
        self.piece = Buffer(PIECE_SIZE)
        self._window = Buffer(WINDOW_SIZE)

    def window(self, size: int, position: int) -> memoryview:
        """``size`` bytes for what begins at ``position`` of a file.

        They are taken from a buffer that is as large as the largest entry so far has needed.
        """
        if self._window.size < size:
            self._window = Buffer(size)
        place = self._window.place(position)
        return memoryview(self._window.octets)[place : place + size]
