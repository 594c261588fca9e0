"""The HTTP port while a broker opens its data: it tells probes that the process lives.

That can take minutes, also in a process that served before: after a refill the whole log is read.
Without an answer to ``/livez`` the process would be killed, and would begin again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from http import HTTPStatus

from aiohttp import web

from broker.config.node_config import NodeConfig
from broker.http.errors import json_response, refuse_as_json
from broker.http.origin_guard import protect
from broker.http.port import HttpPort
from broker.http.server import guard_of
from broker.limits import HttpLimits
from broker.security.port_tls import PortTls

log = logging.getLogger(__name__)

OPENS = "opens its data"


class OpeningPort:
    """Answers ``/livez`` with 200 and all else with 503, from :meth:`start` to :meth:`stop`."""

    def __init__(
        self,
        config: NodeConfig,
        loop: asyncio.AbstractEventLoop,
        limits: HttpLimits,
        tls: PortTls | None = None,
    ) -> None:
        self._config = config
        self._port = HttpPort(loop, *config.listening.http, limits, tls)

    def app(self) -> web.Application:
        """The application without a port."""
        guard = guard_of(self._config)
        app = web.Application(
            middlewares=[refuse_as_json(lambda: None, Counter()), guard.refuse_foreign]
        )
        app.on_response_prepare.append(protect)
        app.add_routes([web.get("/livez", self._live), web.route("*", "/{path:.*}", self._refuse)])
        return app

    async def start(self) -> None:
        """Listens. If the port is taken, it is for :class:`~broker.http.server.HttpServer` to say
        so: the data may be open in another process, which has this port too."""
        try:
            await self._port.start(self.app())
        except OSError as error:
            log.info("no probe is answered while the data is opened: %s", error)

    async def stop(self) -> None:
        """Closes the port and all connections, if it listens."""
        await self._port.stop()

    async def _live(self, _request: web.Request) -> web.Response:
        return json_response({"status": "ok", "node": self._config.name})

    async def _refuse(self, _request: web.Request) -> web.Response:
        document = {"status": OPENS, "node": self._config.name, "error": OPENS}
        return json_response(document, HTTPStatus.SERVICE_UNAVAILABLE)
