"""The port for peers. A connection must say in time which node it belongs to."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from aiohttp import web

from dledger.config import PeerLimits
from dledger.errors import DLedgerError, PeerError
from dledger.wire.bad_request_log import BadRequestLog
from dledger.wire.endpoint import listening_hosts
from dledger.wire.peer_identity import PeerSecurity
from dledger.wire.peer_link import PATH
from dledger.wire.tls_server import TlsServer, TlsServerLimits
from store.quoting import FROM_OUTSIDE

log = logging.getLogger(__name__)

LOG_SECONDS = 1.0
"""Seconds between two lines about refused peers."""


class PeerListener:
    """The listening port of a transport."""

    def __init__(self, limits: PeerLimits, security: PeerSecurity | None = None) -> None:
        self._limits = limits
        self._security = security
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | TlsServer | None = None
        self._ungreeted: dict[web.RequestHandler, asyncio.TimerHandle] = {}
        self._logged_at = float("-inf")
        self._unlogged = 0

    async def open(
        self,
        host: str,
        port: int,
        accept: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> None:
        """Listens. ``OSError`` if the port is taken; :meth:`close` is to follow then, too."""
        app = web.Application()
        app.router.add_get(PATH, accept)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            shutdown_timeout=0.1,
            logger=BadRequestLog(log, FROM_OUTSIDE),
            auto_decompress=False,
        )
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        if self._security is None:
            self._server = await loop.create_server(self._connected, listening_hosts(host), port)
            return
        self._server = TlsServer(
            self._connected,
            self._security.contexts.server_context,
            plain=not self._security.admission.required,
            refused=lambda remote, reason: self.refused(remote, PeerError(reason)),
            limits=TlsServerLimits(self._limits.ungreeted_max, self._limits.greeting_seconds),
        )
        await self._server.start(host, port)

    async def close(self) -> None:
        """Closes every connection. The port may never have been opened."""
        if self._server is not None:
            self._server.close()
        if self._runner is not None:
            await self._runner.cleanup()
        for timer in self._ungreeted.values():
            timer.cancel()
        self._ungreeted.clear()

    def _connected(self) -> web.RequestHandler:
        """The protocol of a new connection."""
        limits = self._limits
        assert self._runner is not None and self._runner.server is not None  # noqa: S101, PT018 - only called while it listens
        protocol = self._runner.server()
        if len(self._ungreeted) >= limits.ungreeted_max:
            self._end(next(iter(self._ungreeted)))
        loop = asyncio.get_running_loop()
        self._ungreeted[protocol] = loop.call_later(limits.greeting_seconds, self._end, protocol)
        return protocol

    def greeted(self, protocol: web.RequestHandler) -> None:
        """That connection is a peer's."""
        timer = self._ungreeted.pop(protocol, None)
        if timer is not None:
            timer.cancel()

    def _end(self, protocol: web.RequestHandler) -> None:
        self.greeted(protocol)
        if protocol.transport is not None:
            protocol.transport.abort()

    def refused(self, remote: str | None, error: DLedgerError) -> None:
        """Logs it, at most one line a second: anybody may connect as often as it likes."""
        now = asyncio.get_running_loop().time()
        if now - self._logged_at < LOG_SECONDS:
            self._unlogged += 1
            return
        others = f" (and {self._unlogged} others before)" if self._unlogged else ""
        log.error("refusing a peer at %s: %s%s", remote, error, others)
        self._logged_at, self._unlogged = now, 0
