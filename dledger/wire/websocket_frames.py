"""Reads WebSocket frames with whole binary messages, as peers send them (RFC 6455, 5.2).

aiohttp does the handshake, pings and the closing. But a message that aiohttp reads goes through a
queue, a future and a task, and is copied twice. So messages are read here, into one buffer that is
used again and again, and handed on where they lie. A frame of another kind, or one that is too
large, goes to aiohttp unchanged, and so does everything after it.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable

BUFFER_SIZE = 64 << 10
BUFFER_KEPT = 4 << 20
"""A larger buffer is given up when the messages that needed it are read."""

ROOM_BYTES = 1 << 20

_FINAL_BINARY = 0x82
_HEADER_16 = struct.Struct(">BBH")
_HEADER_64 = struct.Struct(">BBQ")
_SIZE_16, _SIZE_64 = 126, 127


def frame_header(size: int) -> bytes:
    """Of a whole binary message without a mask."""
    if size < _SIZE_16:
        return bytes((_FINAL_BINARY, size))
    if size < 1 << 16:
        return _HEADER_16.pack(_FINAL_BINARY, _SIZE_16, size)
    return _HEADER_64.pack(_FINAL_BINARY, _SIZE_64, size)


class MessageReader(asyncio.BufferedProtocol):
    """Takes the place of aiohttp's protocol on one connection, and takes the messages out."""

    def __init__(
        self,
        inner: asyncio.Protocol,
        size_max: int,
        received: Callable[[memoryview], bool],
    ) -> None:
        """``received`` gets each message, in a buffer that holds another one afterwards, and says
        whether to go on; if not, the connection is its own to close. An error in it is told to the
        loop's exception handler, and closes the connection. No ``OSError`` may leave it: a loop
        takes that for one of the connection's own, and tells nobody."""
        self._inner = inner
        self.size_max = size_max
        """A larger message is given to aiohttp, and ends the connection."""
        self._received = received
        self._reading = True
        self._given_over = False
        self._buffer = bytearray(BUFFER_SIZE)
        self._view = memoryview(self._buffer)
        self._begin = self._end = 0  # what has arrived and is not read
        self.messages = 0
        """Messages read so far. The number stands still while one is arriving."""

    @property
    def waits(self) -> bool:
        """Whether a message is under way."""
        return self._begin != self._end

    @staticmethod
    def put_before_protocol(
        transport: asyncio.Transport, size_max: int, received: Callable[[memoryview], bool]
    ) -> MessageReader:
        """Reads that connection from now on. Nothing may have arrived on it that is unread."""
        inner = transport.get_protocol()
        if not isinstance(inner, asyncio.Protocol):
            raise TypeError(f"the protocol of the connection is {inner!r}")
        # How a loop reads depends on the kind of protocol that it found when it began to.
        transport.pause_reading()
        reader = MessageReader(inner, size_max, received)
        transport.set_protocol(reader)
        transport.resume_reading()
        return reader

    # --- what the transport calls

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio calls it so
        """Never empty: where a message does not fit, room for more of it was made."""
        return self._view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        """Tells the messages that are whole now."""
        self._end += nbytes
        if self._given_over:
            self._give_over()
            return
        view = self._view
        while self._reading:
            begin, available = self._begin, self._end - self._begin
            if available < 2:
                break
            size = view[begin + 1]
            head = 2
            if size == _SIZE_16:
                head = 4
            elif size == _SIZE_64:
                head = 10
            if available < head:
                break
            if head > 2:
                size = int.from_bytes(view[begin + 2 : begin + head], "big")
            if view[begin] != _FINAL_BINARY or view[begin + 1] > _SIZE_64 or size > self.size_max:
                self._give_over()
                return
            if available < head + size:
                self._make_room(head + size)
                return
            self._begin = end = begin + head + size
            self.messages += 1
            self._reading = self._received(view[begin + head : end])
        if self._begin == self._end or not self._reading:
            self._begin = self._end = 0
            if len(self._buffer) > BUFFER_KEPT:
                self._replace_buffer(BUFFER_SIZE)
        else:
            self._make_room(_HEADER_64.size)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._reading = False
        self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    # --- the buffer

    def _give_over(self) -> None:
        self._given_over = True
        rest = bytes(self._view[self._begin : self._end])
        self._begin = self._end = 0
        self._inner.data_received(rest)

    def _make_room(self, size: int) -> None:
        """So that the message under way, of ``size`` bytes, fits behind what of it is here.

        Of a large one as much as has arrived, and :data:`ROOM_BYTES`: a size that is only stated
        takes no memory.
        """
        begin, end = self._begin, self._end
        size = min(size, 2 * (end - begin) + ROOM_BYTES)
        if begin + size <= len(self._buffer):
            return
        if size > len(self._buffer):
            self._replace_buffer(max(size, 2 * len(self._buffer)))
        else:
            self._view[: end - begin] = self._view[begin:end]
            self._begin, self._end = 0, end - begin

    def _replace_buffer(self, size: int) -> None:
        arrived = self._view[self._begin : self._end]
        self._begin, self._end = 0, len(arrived)
        self._buffer = bytearray(size)
        self._view = memoryview(self._buffer)
        self._view[: self._end] = arrived
