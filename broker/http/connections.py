"""The connections of an HTTP port: a limit for their number, and a time limit for blocked ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from broker.limits import HTTP, HttpLimits
from dledger.periodic import Periodic


class Connections:
    """Makes the protocol of each accepted connection; ends connections whose peer reads nothing.

    aiohttp closes an idle connection, but waits for ever until the peer has read everything
    written. Bytes that are not HTTP end the reading here: aiohttp would go on, and keep an error
    with the bytes for each further piece.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: HttpLimits,
        make: Callable[[], asyncio.Protocol],
    ) -> None:
        """``make`` makes aiohttp's protocol for a connection."""
        self._limits = limits
        self._make = make
        self._open: set[_Connection] = set()
        self._looks = Periodic(loop, limits.stall_seconds, self._look)

    def __len__(self) -> int:
        return len(self._open)

    def start(self) -> None:
        """Begins to check the connections."""
        self._looks.start()

    def stop(self) -> None:
        """Closes all connections, even if not everything was sent."""
        self._looks.stop()
        for connection in tuple(self._open):
            connection.abort()

    def accept(self) -> asyncio.Protocol:
        """The protocol of a new connection."""
        if len(self._open) >= self._limits.connections_max:
            return _Refused()
        return _Connection(self._make(), self._open)

    def _look(self) -> None:
        for connection in tuple(self._open):
            connection.abort_if_stalled()


class _Refused(asyncio.Protocol):
    """The protocol of a connection above the limit."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def _found_no_http(serving: asyncio.Protocol) -> bool:
    """Whether aiohttp's protocol found an error in the last bytes. aiohttp has no public way to
    ask; a test checks the private names. The traceback of the error is dropped: error and frames
    would keep each other in memory."""
    found = getattr(serving, "_messages", None)
    error = getattr(found[-1][0], "exc", None) if found else None
    if error is None:
        return False
    error.__traceback__ = None
    return True


class _Connection(asyncio.Protocol):
    """Passes everything on to aiohttp's protocol; keeps the transport after that has dropped it."""

    def __init__(self, serving: asyncio.Protocol, connections: set[_Connection]) -> None:
        self._serving = serving
        self._is_http = True
        self._connections = connections
        self._transport: asyncio.Transport | None = None
        self._stuck = False
        """Whether writing waits for the peer to read."""
        self._seen: int | None = None
        """While writing waits: the bytes that the peer had not read at the last check."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's has another base class
        self._connections.add(self)
        self._serving.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        self._serving.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        pieces = [data[at : at + HTTP.piece_bytes] for at in range(0, len(data), HTTP.piece_bytes)]
        del data  # an error would keep it in memory
        while pieces and self._is_http:
            self._serving.data_received(pieces.pop(0))
            self._is_http = not _found_no_http(self._serving)
        if not self._is_http and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()  # the next answer closes it

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
        """Ends the connection without an answer."""
        if self._transport is not None:
            self._transport.abort()

    def abort_if_stalled(self) -> None:
        """Ends the connection if the peer has read nothing since the last call."""
        transport = self._transport
        if transport is None or not (self._stuck or transport.is_closing()):
            self._seen = None
            return
        left = transport.get_write_buffer_size()
        if self._seen is not None and left >= self._seen:
            transport.abort()
        self._seen = left
