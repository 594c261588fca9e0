"""One port for TLS and for plain connections, while ``tls`` is permissive.

grpcio cannot distinguish them. So this port does, by the first byte like the other ports, and
passes the bytes to grpcio's own port on loopback. This hop costs CPU time; it is meant for the time
in which a running group is switched to TLS. With ``enforcing`` grpcio itself uses TLS.
"""

from __future__ import annotations

import asyncio
from typing import cast

from broker.limits import GRPC, GrpcLimits
from broker.security.port_tls import PortTls, waiting_limits
from dledger.wire.endpoint import Endpoint
from dledger.wire.tls_server import TlsServer

LOOPBACK = "127.0.0.1"
CONNECT_SECONDS = 5.0
"""Pace: how long a first byte, or a handshake, may take."""

CLOSE_SECONDS = 5.0
"""Pace: how long one end may take to read the rest after the other has closed."""

_BACKLOG = 512


class Relay:
    """Listens for clients, from :meth:`start` to :meth:`close`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        tls: PortTls,
        endpoint: Endpoint,
        limits: GrpcLimits = GRPC,
    ) -> None:
        self._loop = loop
        self._tls = tls
        self._endpoint = endpoint
        self._limits = limits
        self._target = 0
        self._server: TlsServer | None = None
        self._clients: set[_FromClient] = set()
        self._carried: dict[str, _ToGrpc] = {}
        """The connections to grpcio, by the address that grpcio sees."""

    def __len__(self) -> int:
        return len(self._clients)

    async def start(self, target: int) -> None:
        """Passes connections to the port ``target`` on loopback. Raises ``OSError`` if this port is
        taken."""
        self._target = target
        limits = waiting_limits(
            self._limits.handshakes_max,
            self._limits.connections_max,
            CONNECT_SECONDS,
            _BACKLOG,
        )
        self._server = await self._tls.listen(
            lambda: _FromClient(self), self._endpoint.host, self._endpoint.port, limits
        )

    def close(self) -> None:
        """Ends all connections."""
        if self._server is not None:
            self._server.close()
        for client in [*self._clients]:
            client.abort()

    def client(self, seen: str) -> tuple[str, bool]:
        """``host:port`` of the client whose connection grpcio sees from ``seen``, and whether it
        uses TLS. The address is empty for a lost connection, and for one that the relay has not
        made; so nobody is taken for a client on this machine."""
        end = self._carried.get(seen)
        return ("", False) if end is None else (end.client.address, end.client.tls)

    def opened(self, client: _FromClient) -> bool:
        """Whether there is room for one more connection."""
        if len(self._clients) >= self._limits.connections_max:
            return False
        self._clients.add(client)
        return True

    def closed(self, client: _FromClient) -> None:
        self._clients.discard(client)

    def carries(self, seen: str, end: _ToGrpc) -> None:
        """A connection to grpcio is open. It stays known until it is lost, because grpcio may serve
        its calls after the client has gone."""
        self._carried[seen] = end

    def carries_no_more(self, seen: str, end: _ToGrpc) -> None:
        if self._carried.get(seen) is end:
            del self._carried[seen]

    def connect(self, client: _FromClient) -> asyncio.Task[None]:
        """Connects to grpcio, and passes the bytes of the client on."""
        return self._loop.create_task(self._connect(client))

    async def _connect(self, client: _FromClient) -> None:
        try:
            _transport, to_grpc = await self._loop.create_connection(
                lambda: _ToGrpc(self, client), LOOPBACK, self._target
            )
        except OSError:
            client.abort()
            return
        client.begin(to_grpc)


class _End(asyncio.Protocol):
    """One end of a connection: its bytes go to the other."""

    transport: asyncio.Transport

    def __init__(self, other: _End | None = None) -> None:
        self.other = other
        self._ending: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        assert self.other is not None  # noqa: S101 - a client waits until it has one
        self.other.transport.write(data)

    def pause_writing(self) -> None:
        if self.other is not None and not self.other.transport.is_closing():
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and not self.other.transport.is_closing():
            self.other.transport.resume_reading()

    def connection_lost(self, _error: Exception | None) -> None:
        if self._ending is not None:  # the other end has closed before
            self._ending.cancel()
        elif self.other is not None:
            self.other.end()

    def end(self) -> None:
        """The other end has closed: closes once all bytes are written."""
        self.transport.close()
        loop = asyncio.get_running_loop()
        self._ending = loop.call_later(CLOSE_SECONDS, self.transport.abort)


class _FromClient(_End):
    """The end at a client."""

    def __init__(self, relay: Relay) -> None:
        super().__init__()
        self._relay = relay
        self._dialling: asyncio.Task[None] | None = None
        self._first: list[bytes] = []
        """Bytes that came before the connection to grpcio: uvloop reads once in spite of the
        pause."""
        self.address = ""
        self.tls = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        told = transport.get_extra_info
        self.address, self.tls = _text(told("peername")), told("ssl_object") is not None
        if not self._relay.opened(self):
            self.transport.abort()
            return
        self.transport.pause_reading()
        self._dialling = self._relay.connect(self)

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            self.other.transport.write(data)
        else:
            self._first.append(data)
            self.transport.pause_reading()

    def begin(self, to_grpc: _End) -> None:
        """Starts to pass bytes on: the connection to grpcio is open."""
        self.other = to_grpc
        if self.transport.is_closing():
            to_grpc.transport.close()
            return
        self.transport.resume_reading()  # before the write, which may pause it
        to_grpc.transport.writelines(self._first)
        self._first.clear()

    def abort(self) -> None:
        """Closes at once."""
        self.transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        if self._dialling is not None:
            self._dialling.cancel()
        self._relay.closed(self)


class _ToGrpc(_End):
    """The end at grpcio."""

    def __init__(self, relay: Relay, client: _FromClient) -> None:
        super().__init__(client)
        self.client = client
        self._relay = relay
        self._seen = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._seen = _text(transport.get_extra_info("sockname"))
        self._relay.carries(self._seen, self)

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._relay.carries_no_more(self._seen, self)


def _text(address: tuple[str, int] | None) -> str:
    """The address as text; empty for a client that closed at once."""
    return "" if address is None else str(Endpoint(*address[:2]))
