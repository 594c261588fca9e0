"""The routes of the HTTP port, and what they say of the broker itself.

::

    GET  /                                      the console: a page that shows the group live
    GET  /nodes                                 /status of every member, for that page
    GET  /healthz                               200 {"status": "ok", ...}, or 503 and why not
    GET  /status                                this node and its group
    GET  /topics                                the topics, their settings and sizes
    GET  /groups                                the consumer groups, and how far behind they are
    POST /topics/T/messages                     {"body": "text"}; also body_base64, tags, keys,
                                                properties, queue_id (any if left out)
    GET  /topics/T/queues/Q/messages?offset=0&count=32&wait_ms=0
    POST /snapshot                              {"directory": "/new/directory"} on this machine

Errors are {"error": "..."} with a fitting status; 503 names the leader where it is known.
"""

from __future__ import annotations

import logging
from http import HTTPStatus

from aiohttp import web

from broker.context import BrokerContext
from broker.http.console import Console
from broker.http.consume import ConsumeHandler
from broker.http.documents import groups_document, status_document, topics_document
from broker.http.errors import json_response, refuse_as_json
from broker.http.produce import ProduceHandler
from broker.http.snapshot import SnapshotHandler
from broker.runtime import role_name
from dledger.listening import BoundedSite
from dledger.requestlog import RequestLog
from store.outside import FROM_OUTSIDE

log = logging.getLogger(__name__)

_JSON_OVERHEAD = 2
"""A body of base64 and escapes may be that much longer than the message."""

SHUTDOWN_SECONDS = 1.0


class HttpServer:
    """Serves HTTP for one broker."""

    def __init__(self, context: BrokerContext, connections_max: int = 1024) -> None:
        self._connections_max = connections_max
        self._context = context
        self._runner: web.AppRunner | None = None

    def app(self) -> web.Application:
        """The application, which a test can serve without a port."""
        size_max = _JSON_OVERHEAD * self._context.config.max_message_size + (64 << 10)
        app = web.Application(middlewares=[refuse_as_json], client_max_size=size_max)
        console = Console(self._context)
        app.add_routes(
            [
                web.get("/", console.page),
                web.get("/nodes", console.nodes),
                web.get("/healthz", self._health),
                web.get("/status", self._status),
                web.get("/topics", self._topics),
                web.get("/groups", self._groups),
                web.post("/snapshot", SnapshotHandler(self._context).post),
                web.post("/topics/{topic}/messages", ProduceHandler(self._context).post),
                web.get(
                    "/topics/{topic}/queues/{queue}/messages", ConsumeHandler(self._context).get
                ),
            ]
        )
        return app

    async def start(self) -> None:
        """Listens. ``OSError`` if the port is taken."""
        host, port = self._context.config.own.http
        self._runner = web.AppRunner(
            self.app(),
            access_log=None,
            shutdown_timeout=SHUTDOWN_SECONDS,
            logger=RequestLog(log, FROM_OUTSIDE),
        )
        await self._runner.setup()
        await BoundedSite(self._runner, host, port, connections_max=self._connections_max).start()

    async def stop(self) -> None:
        """Closes the port and the connections."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _health(self, _request: web.Request) -> web.Response:
        """Healthy is who serves: a leader that may propose, or a follower that knows its leader."""
        context = self._context
        leadership = context.node.leadership
        document = {"node": context.config.name, "role": role_name(context)}
        if leadership.leader is None:
            return json_response(
                {"status": "no leader is known", **document}, HTTPStatus.SERVICE_UNAVAILABLE
            )
        if leadership.leader == context.config.node and not leadership.serving:
            return json_response(
                {"status": "leads, but does not serve yet", **document},
                HTTPStatus.SERVICE_UNAVAILABLE,
            )
        return json_response({"status": "ok", **document})

    async def _status(self, _request: web.Request) -> web.Response:
        return json_response(status_document(self._context))

    async def _topics(self, _request: web.Request) -> web.Response:
        return json_response(topics_document(self._context))

    async def _groups(self, _request: web.Request) -> web.Response:
        return json_response(groups_document(self._context))
