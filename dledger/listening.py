"""A port of an HTTP server that takes a bounded number of connections."""

from __future__ import annotations

import asyncio
import logging
from typing import cast

from aiohttp import web

from store.outside import FROM_OUTSIDE

log = logging.getLogger(__name__)


class BoundedSite(web.TCPSite):
    """As aiohttp's, but a connection beyond ``connections_max`` is closed once it is accepted."""

    def __init__(
        self, runner: web.AppRunner, host: str, port: int, *, connections_max: int
    ) -> None:
        super().__init__(runner, host, port)
        self._connections_max = connections_max

    async def start(self) -> None:
        """Listens. ``OSError`` if the port is taken."""
        await web.BaseSite.start(self)
        self._server = await asyncio.get_running_loop().create_server(
            self._accepted, self._host, self._port, backlog=self._backlog
        )

    def _accepted(self) -> asyncio.Protocol:
        server = self._runner.server
        if server is None:
            return Refused()
        if len(server.connections) >= self._connections_max:
            log.warning(
                "%s: refused a connection: %d are open",
                self.name,
                self._connections_max,
                extra=FROM_OUTSIDE,
            )
            return Refused()
        return cast("asyncio.Protocol", server())


class Refused(asyncio.Protocol):
    """A connection that is closed as soon as it is there."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast("asyncio.Transport", transport).abort()
