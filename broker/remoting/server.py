"""The listening side: accepts connections, closes idle and blocked ones."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable

from broker.limits import RemotingLimits
from broker.remoting.byte_budget import ByteBudget, Holder
from broker.remoting.connection import Connection, Forward, Handler
from broker.remoting.turn_limit import TurnLimit
from broker.security.port_tls import PortTls, waiting_limits
from dledger.wire.endpoint import listening_hosts
from dledger.wire.tls_server import TlsServer
from dledger.wire.unsent_limit import limit_unsent
from store.quoting import FROM_OUTSIDE

logger = logging.getLogger("dledger.remoting")


class AcceptedConnection(Connection):
    """A server's connection. It handles no requests while its peer does not read the answers."""

    __slots__ = ("unread",)

    unread: ByteBudget
    """The budget for answers that the peer has not read."""

    def pause_writing(self) -> None:
        self._may_answer = False
        self._light = False
        self._set_reading()

    def resume_writing(self) -> None:
        self._may_answer = True
        self.unread.keep(self, 0)
        self._set_reading()
        if self._frames is not None:
            self._wait_for_turn(self._frames)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.unread.keep(self, 0)

    def _flush(self) -> None:
        super()._flush()
        if self._unsent_max > self._limits.unread_each:
            self.unread.keep(self, self._unsent_max)
        # Answers to held pulls, and pushes, still come during the pause.
        if not self._closed and self.buffered > self._limits.write_buffer_max:
            self.refuse("it does not read its answers")


def _buffered(connection: Holder) -> int:
    return connection.buffered if isinstance(connection, Connection) else 0


class RemotingServer:
    """Serves remoting requests on one port.

    ``dispatch(connection, request)`` is called for every request, on the loop's thread, and must
    not wait: it answers at once or later, in any order.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        host: str,
        port: int,
        dispatch: Handler,
        limits: RemotingLimits | None = None,
        *,
        forward: Forward | None = None,
        tls: PortTls | None = None,
        clock: Callable[[], float] | None = None,
        cpu_clock: Callable[[], float] | None = None,
        vip_port: int | None = None,
    ) -> None:
        """Without ``tls`` the port has no TLS. ``vip_port`` is a second port with the same service.
        ``clock``, ``cpu_clock``: see :class:`TurnLimit`."""
        self._loop = loop
        self._host = host
        self._port = port
        self._vip_port = vip_port
        self._dispatch = dispatch
        self._limits = limits or RemotingLimits()
        self._forward = forward
        self._tls = tls
        self._listening: list[asyncio.AbstractServer | TlsServer] = []
        self._connections: dict[Connection, None] = {}
        self._accepted = 0
        self.on_closed: Callable[[], None] = lambda: None
        """Called with each connection that has closed."""
        self.refusals: Counter[str] = Counter()
        """Requests refused since the start, by reason."""
        own = self._limits
        self._unhandled = ByteBudget("requests", own.unhandled_max, own.unhandled_each)
        self._unread = ByteBudget(
            "answers that nobody reads", own.unread_max, own.unread_each, _buffered
        )
        self._turn_limit = TurnLimit(loop, own, clock, cpu_clock)
        self._idle_timer: asyncio.TimerHandle | None = None
        self._all_closed: asyncio.Future[None] | None = None

    @property
    def port(self) -> int:
        """The configured port, or the one that the system chose for 0."""
        return self._port

    @property
    def connections(self) -> list[Connection]:
        """The open connections, oldest first."""
        return list(self._connections)

    def accept(self) -> Connection:
        """The asyncio protocol of a new connection."""
        self._accepted += 1
        connection = AcceptedConnection(
            self._loop,
            self._dispatch,
            self._limits,
            number=self._accepted,
            budget=self._unhandled,
            turns=self._turn_limit,
            refusals=self.refusals,
        )
        connection.forward = self._forward
        connection.unread = self._unread
        if len(self._connections) >= self._limits.connections_max:
            logger.warning(
                "refused a connection: %d are open", len(self._connections), extra=FROM_OUTSIDE
            )
            connection.close()
            return connection
        self._connections[connection] = None
        connection.on_close(self._forget)
        if self._idle_timer is None:
            self._watch_idle()
        return connection

    async def start(self) -> None:
        """Listens. Raises ``OSError`` if an address cannot be used; nothing listens then."""
        try:
            self._port = await self._listen(self._port)
            if self._vip_port is not None:
                await self._listen(self._vip_port)
        except OSError:
            self._stop_listening()
            raise

    async def _listen(self, port: int) -> int:
        """Returns the port, which the system has chosen if ``port`` is 0."""
        limits = self._limits
        server: asyncio.AbstractServer | TlsServer
        if self._tls is None:
            server = await self._loop.create_server(
                self.accept, listening_hosts(self._host), port, backlog=limits.backlog
            )
        else:
            waiting = waiting_limits(
                limits.handshakes_max,
                limits.connections_max,
                limits.connect_seconds,
                limits.backlog,
            )
            server = await self._tls.listen(self.accept, self._host, port, waiting)
        self._listening.append(server)
        sockets = getattr(server, "sockets", ())
        limit_unsent(sockets, limits.kernel_unsent)
        return int(sockets[0].getsockname()[1]) if sockets else port

    def _stop_listening(self) -> None:
        for server in self._listening:
            server.close()
        self._listening.clear()

    async def stop(self) -> None:
        """Stops listening and closes every connection; answers already given may still leave."""
        self._stop_listening()
        if self._connections:
            self._all_closed = self._loop.create_future()
            for connection in self.connections:
                connection.close()
            cut = self._loop.call_later(self._limits.stop_seconds, self._abort_all)
            await self._all_closed
            cut.cancel()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None

    def _abort_all(self) -> None:
        for connection in self.connections:
            connection.abort()

    def _forget(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        self.on_closed()
        if not self._connections and self._all_closed is not None and not self._all_closed.done():
            self._all_closed.set_result(None)

    def _watch_idle(self) -> None:
        idle_since = self._loop.time() - self._limits.idle_seconds
        for connection in self.connections:
            if connection.last_active <= idle_since:
                connection.abort(reason="idle")
        self._idle_timer = self._loop.call_later(self._limits.idle_seconds / 8, self._watch_idle)
