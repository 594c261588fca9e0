"""A listening port that takes TLS and plain connections, told apart by their first byte.

RocketMQ does the same (``tls.server.mode``). A TLS connection begins with a handshake record, byte
0x16, and none of our protocols begins with that byte. The byte is looked at before anything is
read, so the event loop then serves each kind as if the port had no other.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, cast

from dledger.wire.endpoint import listening_hosts

log = logging.getLogger(__name__)

HANDSHAKE_RECORD = 0x16
ACCEPTS_IN_A_TURN = 32
OUT_OF_RESOURCES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
PAUSE_SECONDS = 1.0


class TlsServerLimits(NamedTuple):
    """Of connections that nobody serves yet: how many, and for how long they may be silent or in
    their handshake. Beyond the number the oldest is closed."""

    waiting_max: int = 64
    seconds: float = 5.0
    backlog: int = 100


class TlsServer:
    """Serves one port.

    ``protocol`` makes the protocol of a connection. ``context`` gives the context for a handshake
    that begins now. Without ``plain`` nothing but TLS is taken. ``refused`` is told the host of
    the other end of a connection that is not served, and why.
    """

    def __init__(
        self,
        protocol: Callable[[], asyncio.BaseProtocol],
        context: Callable[[], ssl.SSLContext],
        *,
        plain: bool,
        refused: Callable[[str, str], None],
        limits: TlsServerLimits | None = None,
    ) -> None:
        self._protocol = protocol
        self._context = context
        self._plain = plain
        self._refused = refused
        self._limits = limits or TlsServerLimits()
        self._loop: asyncio.AbstractEventLoop
        self.sockets: list[socket.socket] = []
        """Those that listen."""
        self._silent: dict[socket.socket, asyncio.TimerHandle] = {}
        self._pauses: set[asyncio.TimerHandle] = set()
        self._connecting: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int) -> None:
        """Listens. Raises ``OSError`` if the address cannot be had; nothing is open then."""
        self._loop = loop = asyncio.get_running_loop()
        found = []
        hosts = listening_hosts(host)
        for each in [hosts] if isinstance(hosts, str) else hosts:
            found += await loop.getaddrinfo(
                each, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
        try:
            for family, address in dict.fromkeys((each[0], each[4][:2]) for each in found):
                self.sockets.append(
                    socket.create_server(address, family=family, backlog=self._limits.backlog)
                )
        except OSError:
            self.close()
            raise
        for listening in self.sockets:
            listening.setblocking(False)
            self._listen(listening)

    def close(self) -> None:
        """Accepts nobody any more, and ends whom nobody serves yet."""
        for pause in self._pauses:
            pause.cancel()
        for listening in self.sockets:
            self._loop.remove_reader(listening.fileno())
            listening.close()
        self.sockets.clear()
        for connection in [*self._silent]:
            self._close(connection)
        for task in self._connecting:
            task.cancel()

    def _listen(self, listening: socket.socket) -> None:
        self._loop.add_reader(listening.fileno(), self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_IN_A_TURN):
            try:
                connection, _address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in OUT_OF_RESOURCES:
                    raise
                log.error("cannot accept connections for a while: %s", error.strerror)
                self._pause(listening)
                return
            self._wait_for_first_byte(connection)

    def _pause(self, listening: socket.socket) -> None:
        def go_on() -> None:
            self._pauses.discard(pause)
            self._listen(listening)

        self._loop.remove_reader(listening.fileno())
        pause = self._loop.call_later(PAUSE_SECONDS, go_on)
        self._pauses.add(pause)

    def _wait_for_first_byte(self, connection: socket.socket) -> None:
        if len(self._silent) + len(self._connecting) >= self._limits.waiting_max and self._silent:
            self._close(next(iter(self._silent)))
        connection.setblocking(False)
        self._silent[connection] = self._loop.call_later(
            self._limits.seconds, self._close, connection
        )
        self._loop.add_reader(connection.fileno(), self._readable, connection)

    def _readable(self, connection: socket.socket) -> None:
        try:
            first = connection.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            first = b""
        if not first:  # it went away
            self._close(connection)
        elif first[0] == HANDSHAKE_RECORD:
            self._serve(connection, tls=True)
        elif self._plain:
            self._serve(connection, tls=False)
        else:
            self._refused(_host_of(connection), "it does not speak TLS")
            self._close(connection)

    def _serve(self, connection: socket.socket, *, tls: bool) -> None:
        # Until the task begins, the connection is closed with those that are silent: a task that
        # is cancelled before then runs nothing.
        self._loop.remove_reader(connection.fileno())
        task = self._loop.create_task(self._connect(connection, tls=tls))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connect(self, connection: socket.socket, *, tls: bool) -> None:
        timer = self._silent.pop(connection, None)
        if timer is None:
            return  # it was closed meanwhile
        timer.cancel()
        host = _host_of(connection)
        try:
            if tls:
                await self._loop.connect_accepted_socket(
                    lambda: _Connected(self._protocol),
                    connection,
                    ssl=self._context(),
                    ssl_handshake_timeout=self._limits.seconds,
                )
            else:
                await self._loop.connect_accepted_socket(self._protocol, connection)
        except OSError as error:  # the errors of TLS are of this kind too
            connection.close()
            if tls:
                self._refused(host, f"the TLS handshake failed: {tls_reason(error)}")

    def _forget(self, connection: socket.socket) -> None:
        self._silent.pop(connection).cancel()
        self._loop.remove_reader(connection.fileno())

    def _close(self, connection: socket.socket) -> None:
        self._forget(connection)
        connection.close()


class _Connected(asyncio.Protocol):
    """Makes the protocol of a connection once that stands, with TLS after the handshake: asyncio
    tells a protocol nothing of a handshake that fails."""

    def __init__(self, make: Callable[[], asyncio.BaseProtocol]) -> None:
        self._make = make

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        protocol = self._make()
        cast("asyncio.Transport", transport).set_protocol(protocol)
        protocol.connection_made(transport)


def _host_of(connection: socket.socket) -> str:
    with suppress(OSError):
        return str(connection.getpeername()[0])
    return "an unknown address"


def tls_reason(error: BaseException) -> str:
    """Why a handshake failed, for people."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).lower().replace("_", " ")
    return str(error) or "the other end went away"
