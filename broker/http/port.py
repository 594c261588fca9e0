"""An HTTP port: an application, its limits, and the socket on which it listens."""

from __future__ import annotations

import asyncio
import logging

from aiohttp import web

from broker.http.connections import Connections
from broker.limits import HttpLimits
from broker.security.port_tls import PortTls, waiting_limits
from dledger.wire.bad_request_log import BadRequestLog
from dledger.wire.endpoint import listening_hosts
from dledger.wire.tls_server import TlsServer
from dledger.wire.unsent_limit import limit_unsent
from store.quoting import FROM_OUTSIDE

log = logging.getLogger(__name__)

SHUTDOWN_SECONDS = 1.0


def runner_of(app: web.Application, limits: HttpLimits) -> web.AppRunner:
    """The server of an application, with its limits."""
    return web.AppRunner(
        app,
        access_log=None,
        shutdown_timeout=SHUTDOWN_SECONDS,
        logger=BadRequestLog(log, FROM_OUTSIDE),
        keepalive_timeout=limits.idle_seconds,
        max_headers=limits.headers_max,
        handler_cancellation=True,  # a client that is gone waits for nothing
        auto_decompress=False,  # bodies are not compressed
    )


class HttpPort:
    """Listens, from :meth:`start` to :meth:`stop`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        host: str,
        port: int,
        limits: HttpLimits,
        tls: PortTls | None = None,
    ) -> None:
        """Without ``tls`` the port has no TLS."""
        self._loop = loop
        self._host = host
        self._port = port
        self._limits = limits
        self._runner: web.AppRunner | None = None
        self._tls = tls
        self._server: asyncio.AbstractServer | TlsServer | None = None
        self._connections: Connections | None = None

    @property
    def port(self) -> int:
        """The configured port, or the one that the system chose for 0."""
        return self._port

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return 0 if self._connections is None else len(self._connections)

    async def start(self, app: web.Application) -> None:
        """Serves ``app``. ``OSError`` if the port is taken."""
        self._runner = runner_of(app, self._limits)
        await self._runner.setup()
        assert self._runner.server is not None  # noqa: S101 - `setup` sets it
        self._connections = Connections(self._loop, self._limits, self._runner.server)
        accept, limits = self._connections.accept, self._limits
        if self._tls is None:
            self._server = await self._loop.create_server(
                accept, listening_hosts(self._host), self._port, backlog=limits.backlog
            )
        else:
            waiting = waiting_limits(
                limits.handshakes_max,
                limits.connections_max,
                limits.stall_seconds,
                limits.backlog,
            )
            self._server = await self._tls.listen(accept, self._host, self._port, waiting)
        sockets = getattr(self._server, "sockets", ())
        limit_unsent(sockets, limits.kernel_unsent)
        if sockets:
            self._port = sockets[0].getsockname()[1]
        self._connections.start()

    async def stop(self) -> None:
        """Closes the port and the connections."""
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        if self._connections is not None:
            self._connections.stop()
            self._connections = None
