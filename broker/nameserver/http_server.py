"""The HTTP port of a NameServer: ``/metrics``, and ``/livez`` and ``/readyz`` for probes.

A NameServer is ready as soon as it listens: brokers register again within seconds.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence

from aiohttp import web

from broker.http.errors import json_response, refuse_as_json
from broker.http.origin_guard import OriginGuard, protect
from broker.http.port import HttpPort
from broker.limits import HTTP
from broker.metrics.event_loop_lag import EventLoopLag
from broker.nameserver.server import NameServer
from broker.prometheus import catalog
from broker.prometheus.metric import Reading, single
from broker.prometheus.ports import PortMetrics, port_readings
from broker.prometheus.text_page import CONTENT_TYPE_HEADER, TextPage
from broker.security.port_tls import PortTls


class NameServerHttp:
    """Serves HTTP for one NameServer."""

    def __init__(
        self,
        nameserver: NameServer,
        loop: asyncio.AbstractEventLoop,
        host: str,
        port: int,
        *,
        clock: Callable[[], float],
        http_hosts: Sequence[str] = (),
        tls: PortTls | None = None,
    ) -> None:
        """``clock`` gives seconds of a monotonic clock. ``http_hosts`` are names of this machine
        besides ``host``. ``tls`` is that of the NameServer's other port."""
        self._nameserver = nameserver
        self._hosts = [host, *http_hosts]
        self._loop_lag = EventLoopLag(loop, clock)
        self._port = HttpPort(loop, host, port, HTTP, tls)
        self._refusals: Counter[str] = Counter()
        labels = {"node_type": catalog.NAMESERVER}
        self._page = TextPage(self._readings, labels, clock)

    @property
    def port(self) -> int:
        """The configured port, or the one that the system chose for 0."""
        return self._port.port

    def app(self) -> web.Application:
        """The application without a port. Nothing needs an account: a NameServer has none but its
        admin's, and tells everybody more by routes than by these figures."""
        guard = OriginGuard(self._hosts)
        app = web.Application(
            middlewares=[
                refuse_as_json(lambda: None, self._refusals),
                guard.refuse_foreign,
            ],
        )
        app.on_response_prepare.append(protect)
        app.add_routes(
            [
                web.get("/metrics", self._metrics),
                *(web.get(path, self._alive) for path in ("/livez", "/readyz", "/healthz")),
            ]
        )
        return app

    async def start(self) -> None:
        """Listens. Raises ``OSError`` if the port is taken."""
        await self._port.start(self.app())
        self._loop_lag.start()

    async def stop(self) -> None:
        """Closes the port and the connections."""
        self._loop_lag.stop()
        await self._port.stop()

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=await self._page.text(), headers=CONTENT_TYPE_HEADER)

    async def _alive(self, _request: web.Request) -> web.Response:
        return json_response({"status": "ok"})

    async def _readings(self) -> AsyncIterator[Reading]:
        counts = self._nameserver.routes.counts()
        yield single(catalog.NS_BROKERS, counts.processes)
        yield single(catalog.NS_GROUPS, counts.broker_names)
        yield single(catalog.NS_LEADERLESS, counts.without_leader)
        yield single(catalog.NS_TOPICS, counts.topics)
        yield single(catalog.LOOP_LAG_SECONDS, self._loop_lag.seconds)
        remoting = self._nameserver.server
        ports = {
            "remoting": PortMetrics(lambda: len(remoting.connections), remoting.refusals),
            "http": PortMetrics(lambda: self._port.connections, self._refusals),
        }
        for reading in port_readings(ports):
            yield reading
