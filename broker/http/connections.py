"""The connections of an HTTP port: how many there may be, and for how long one may stand still."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from broker.limits import HTTP, HttpLimits
from dledger.periodic import Periodic


class Connections:
    """Makes the protocol of each connection that is accepted; ends those whose peer takes nothing.

    aiohttp closes a connection that is idle, but waits without an end until the peer has taken what
    was written. What cannot be read as HTTP ends the reading: aiohttp would go on, and keep an
    error for each piece that follows, with the piece in it.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: HttpLimits,
        make: Callable[[], asyncio.Protocol],
    ) -> None:
        """``make`` makes the protocol that serves a connection."""
        self._limits = limits
        self._make = make
        self._open: set[_Connection] = set()
        self._looks = Periodic(loop, limits.stall_seconds, self._look)

    def __len__(self) -> int:
        return len(self._open)

    def start(self) -> None:
        """Begins to look after the connections."""
        self._looks.start()

    def stop(self) -> None:
        """Closes them, however much was not taken."""
        self._looks.stop()
        for connection in tuple(self._open):
            connection.abort()

    def accept(self) -> asyncio.Protocol:
        """The protocol of a connection that comes in."""
        if len(self._open) >= self._limits.connections_max:
            return _Refused()
        return _Connection(self._make(), self._open)

    def _look(self) -> None:
        for connection in tuple(self._open):
            connection.abort_if_stalled()


class _Refused(asyncio.Protocol):
    """Of a connection that is one too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def _found_no_http(serving: asyncio.Protocol) -> bool:
    """Whether what came last to aiohttp's protocol is an error. It has no public sign of that; a
    test holds its names. The error gives up its frames: they keep each other in memory."""
    found = getattr(serving, "_messages", None)
    error = getattr(found[-1][0], "exc", None) if found else None
    if error is None:
        return False
    error.__traceback__ = None
    return True


class _Connection(asyncio.Protocol):
    """Hands on to the protocol that serves; knows the transport when that has let go of it."""

    def __init__(self, serving: asyncio.Protocol, connections: set[_Connection]) -> None:
        self._serving = serving
        self._is_http = True
        self._connections = connections
        self._transport: asyncio.Transport | None = None
        self._stuck = False
        """Whether the peer is waited for to take something."""
        self._seen: int | None = None
        """Bytes that it had not taken at the last look, where it was waited for."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by its class
        self._connections.add(self)
        self._serving.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        self._serving.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        pieces = [data[at : at + HTTP.piece_bytes] for at in range(0, len(data), HTTP.piece_bytes)]
        del data  # an error keeps the frames below it
        while pieces and self._is_http:
            self._serving.data_received(pieces.pop(0))
            self._is_http = not _found_no_http(self._serving)
        if not self._is_http and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()  # it is closed with the next answer

    def eof_received(self) -> bool | None:
        return self._serving.eof_received()

    def pause_writing(self) -> None:
        self._stuck = True
        self._serving.pause_writing()

    def resume_writing(self) -> None:
        self._stuck = False
        self._seen = None
        self._serving.resume_writing()

    def abort(self) -> None:
        """Ends the connection without a word."""
        if self._transport is not None:
            self._transport.abort()

    def abort_if_stalled(self) -> None:
        """Ends it where the peer has taken nothing since this was called before."""
        transport = self._transport
        if transport is None or not (self._stuck or transport.is_closing()):
            self._seen = None
            return
        left = transport.get_write_buffer_size()
        if self._seen is not None and left >= self._seen:
            transport.abort()
        self._seen = left
