"""The routes of the HTTP port, and what they say of the broker itself.

::

    GET  /healthz                               200 {"status": "ok", ...}, or 503 and why not
    GET  /status                                this node and its group
    GET  /topics                                the topics and their settings
    POST /topics/T/messages                     {"body": "text"}; also body_base64, tags, keys,
                                                properties, queue_id
    GET  /topics/T/queues/Q/messages?offset=0&count=32&wait_ms=0
    POST /snapshot                              {"directory": "/new/directory"} on this machine

Errors are {"error": "..."} with a fitting status; 503 names the leader where it is known.
"""

from __future__ import annotations

from http import HTTPStatus

from aiohttp import web

from broker.context import BrokerContext
from broker.http.consume import ConsumeHandler
from broker.http.errors import json_response, refuse_as_json
from broker.http.produce import ProduceHandler
from broker.http.snapshot import SnapshotHandler
from broker.members import member_addresses
from broker.runtime import role_name

_JSON_OVERHEAD = 2
"""A body of base64 and escapes may be that much longer than the message."""

SHUTDOWN_SECONDS = 1.0


class HttpServer:
    """Serves HTTP for one broker."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._runner: web.AppRunner | None = None

    def app(self) -> web.Application:
        """The application, which a test can serve without a port."""
        size_max = _JSON_OVERHEAD * self._context.config.max_message_size + (64 << 10)
        app = web.Application(middlewares=[refuse_as_json], client_max_size=size_max)
        app.add_routes(
            [
                web.get("/healthz", self._health),
                web.get("/status", self._status),
                web.get("/topics", self._topics),
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
        self._runner = web.AppRunner(self.app(), access_log=None, shutdown_timeout=SHUTDOWN_SECONDS)
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()

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
        context = self._context
        config, node = context.config, context.node
        leadership = node.leadership
        return json_response(
            {
                "group": config.group,
                "node": config.node,
                "cluster": config.cluster,
                "role": role_name(context),
                "term": leadership.term,
                "leader": leadership.leader,
                "serving": leadership.serving,
                "last_index": node.core.log.last_index,
                "commit_index": node.core.commit_index,
                "applied_index": node.applied_index,
                "applied_end": context.machine.applied_end,
                "members": {
                    name: {"peer": at.peer, "address": at.client, "http": at.http}
                    for name, at in member_addresses(config, node.core.configuration).items()
                },
                "topics": len(context.machine.state.topics),
                "groups": len(context.machine.state.groups),
                "held_pulls": len(context.holds),
                "put_messages": context.stats.put_messages,
                "get_messages": context.stats.get_messages,
                "boot_timestamp": context.stats.boot_ms,
                "flush": config.flush,
            }
        )

    async def _topics(self, _request: web.Request) -> web.Response:
        topics = self._context.machine.state.topics
        return json_response(
            {
                "topics": [
                    {
                        "name": name,
                        "read_queues": topic.read_queues,
                        "write_queues": topic.write_queues,
                        "perm": topic.perm,
                    }
                    for name, topic in sorted(topics.items())
                ]
            }
        )
