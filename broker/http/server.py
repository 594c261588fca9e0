"""The routes of the HTTP port, and its answers about the broker itself.

::

    GET  /, /console/...                        the console (:mod:`broker.http.console`)
    GET  /cluster                               all broker groups: their health, nodes, topics and
                                                consumer groups
    GET  /nodes                                 the health of all broker groups, and /status of
                                                every node
    GET  /metrics                               for Prometheus (docs/metrics.md)
    GET  /openapi.yaml                          the description of this API, for programs
    GET  /livez                                 200 while the process is alive, also while it
                                                opens its data (:mod:`broker.http.opening`)
    GET  /readyz, /healthz                      200 {"status": "ok", ...} while this node serves, or
                                                503 with the reason
    GET  /status                                this node and its group
    GET  /topics                                the topics, their settings and sizes
    GET  /groups                                the consumer groups, and their lag
    GET  /waiting                               open transactions, scheduled messages, and
                                                deliveries of POP
                                                (:mod:`broker.admin.waiting_messages`)
    GET  /audit                                 the newest reports of audits on this machine
                                                (:mod:`broker.admin.audit_report`)
    GET  /history?since=MS                      samples of this node's last hours, for charts
    POST /topics/T/messages                     {"body": "text"}; also body_base64, tags, keys,
                                                properties, queue_id (any if left out)
    POST /topics/T/recalls                      {"recall_handle": "..."} of the answer to a timed
                                                message: it is not delivered
    GET  /topics/T/queues/Q/messages?offset=0&count=32&wait_ms=0
    POST /snapshot                              {"directory": "/new/directory"} on this machine;
                                                {}: a new one in snapshots/

A follower forwards a message or a recall to the leader (:mod:`broker.http.forwarding`).

Errors are {"error": "..."} with a status. 503 has the address of the leader if it is known. It has
"outcome": "unknown" if the message may have been stored, and "not_leader" if nothing was done
because this node does not lead. Permissions are in :mod:`broker.http.origin_guard` and
:mod:`broker.http.access`, limits in :class:`~broker.limits.HttpLimits`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from http import HTTPStatus
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Handler

from broker.admin.audit_report import newest_reports
from broker.admin.membership import member_addresses
from broker.admin.node_history import NodeHistory
from broker.admin.node_status import role_name
from broker.admin.waiting_messages import waiting_messages
from broker.config.node_config import NodeConfig
from broker.context import BrokerContext
from broker.errors import WrongStateError
from broker.http.access import HttpAccess
from broker.http.cluster import ClusterHandler
from broker.http.console import ConsoleRoutes
from broker.http.consume import ConsumeHandler, number
from broker.http.errors import HttpRefusedError, json_response, refuse_as_json
from broker.http.forwarding import HttpForwarder
from broker.http.json_documents import (
    audit_document,
    groups_document,
    history_document,
    status_document,
    topics_document,
)
from broker.http.memory_budget import MEMORY, MemoryBudget
from broker.http.origin_guard import OriginGuard, protect
from broker.http.port import HttpPort, runner_of
from broker.http.produce import ProduceHandler
from broker.http.recall import RecallHandler
from broker.http.snapshot import SnapshotHandler
from broker.limits import HTTP, HttpLimits
from broker.metrics.event_loop_lag import EventLoopLag
from broker.prometheus.broker_page import BrokerPage
from broker.prometheus.ports import NO_PORT, PortMetrics
from broker.prometheus.text_page import CONTENT_TYPE_HEADER
from broker.security.port_tls import PortTls

WITHOUT_STATE = frozenset(
    (
        *("/", "/audit", "/cluster", "/console/{path}", "/healthz", "/history", "/livez"),
        *("/metrics", "/nodes", "/openapi.yaml", "/readyz", "/status"),
    )
)
"""The paths that a node answers while its state differs from its group's. The console asks
leaders."""


def guard_of(config: NodeConfig) -> OriginGuard:
    """Knows the names and addresses of a node."""
    endpoints = (at for of in (config.own, config.listening) for at in of.endpoints.values())
    return OriginGuard([*config.http_hosts, *(at.host for at in endpoints)])


class HttpServer:
    """Serves HTTP for one broker."""

    def __init__(
        self,
        context: BrokerContext,
        limits: HttpLimits = HTTP,
        tls: PortTls | None = None,
        *,
        clock: Callable[[], float] | None = None,
        remoting: PortMetrics = NO_PORT,
        wires: Mapping[str, PortMetrics] | None = None,
        nameservers: Mapping[str, str] | None = None,
    ) -> None:
        """``clock`` gives seconds of a monotonic clock, by default the loop's. ``/metrics`` shows
        ``remoting``, further ``wires`` and ``nameservers`` (the outcome of the registration at
        each)."""
        self._context = context
        self._limits = limits
        clock = clock or context.loop.time
        self._port = HttpPort(context.loop, *context.config.listening.http, limits, tls)
        self._refusals: Counter[str] = Counter()
        self._stops = False
        self._loop_lag = EventLoopLag(context.loop, clock)
        self._forwarder = forwarder = HttpForwarder(context, self._leader)
        self.leadership_changed = forwarder.leadership_changed
        own = PortMetrics(
            lambda: self._port.connections, self._refusals, lambda: forwarder.forwarded
        )
        ports = {"remoting": remoting, "http": own, **(wires or {})}
        self._history = NodeHistory(context)
        self._metrics = BrokerPage(context, self._loop_lag, ports, nameservers or {}, clock).page

    def app(self) -> web.Application:
        """The application without a port."""
        config = self._context.config
        memory = MemoryBudget(self._limits, config.max_message_size)
        guard = guard_of(config)
        access = self._context.access
        app = web.Application(
            middlewares=[
                refuse_as_json(self._leader, self._refusals),
                memory.account,
                guard.refuse_foreign,
                *([] if access is None else [HttpAccess(access).check]),
                self._refuse_wrong_state,
            ],
            client_max_size=memory.request_size_max,
        )
        app[MEMORY] = memory
        app.on_response_prepare.append(protect)
        snapshots = SnapshotHandler(self._context, self._limits)
        app.on_startup.append(snapshots.start)
        cluster = ClusterHandler(self._context)
        produce = ProduceHandler(self._context, self._forwarder, self._limits)
        recalls = RecallHandler(self._context, self._forwarder)
        console = ConsoleRoutes(self._context, cluster)
        app.on_cleanup.extend((console.close, cluster.close, self._forwarder.close))
        app.add_routes(
            [
                web.get("/", console.root),
                web.get("/console/{path:.*}", console.get),
                web.post("/console/{path:.*}", console.post),
                web.get("/nodes", cluster.nodes),
                web.get("/cluster", cluster.cluster),
                web.get("/metrics", self._metrics_page),
                web.get("/openapi.yaml", _description),
                web.get("/livez", self._live),
                web.get("/readyz", self._ready),
                web.get("/healthz", self._ready),
                web.get("/status", self._status),
                web.get("/topics", self._topics),
                web.get("/groups", self._groups),
                web.get("/waiting", self._waiting),
                web.get("/audit", self._audit),
                web.get("/history", self._recent),
                web.post("/snapshot", snapshots.post),
                web.post("/topics/{topic}/messages", produce.post),
                web.post("/topics/{topic}/recalls", recalls.post),
                web.get(
                    "/topics/{topic}/queues/{queue}/messages",
                    ConsumeHandler(self._context.delivery, self._context.loop).get,
                ),
            ]
        )
        return app

    def runner(self) -> web.AppRunner:
        """The server of the application, without a port."""
        return runner_of(self.app(), self._limits)

    async def start(self) -> None:
        """Listens. ``OSError`` if the port is taken."""
        await self._port.start(self.app())
        self._loop_lag.start()
        self._history.start()

    def leave(self) -> None:
        """Is not ready any more: a balancer takes new clients elsewhere. All else goes on."""
        self._stops = True

    async def stop(self) -> None:
        """Closes the port and all connections."""
        self._loop_lag.stop()
        self._history.stop()
        await self._port.stop()

    @web.middleware
    async def _refuse_wrong_state(
        self, request: web.Request, handler: Handler
    ) -> web.StreamResponse:
        """Refuses requests about the state of this node while it differs from its group's."""
        resource = request.match_info.route.resource
        path = request.path if resource is None else resource.canonical
        if self._context.node.state_divergence.wrong and path not in WITHOUT_STATE:
            raise WrongStateError
        return await handler(request)

    def _leader(self) -> str | None:
        """The HTTP address of the leader, if another node leads."""
        context = self._context
        leader = context.node.leadership.leader
        if leader is None or leader == context.config.node:
            return None
        members = member_addresses(context.config, context.node.core.configuration)
        member = members.get(leader)
        return member.http or None if member is not None else None

    async def _metrics_page(self, _request: web.Request) -> web.Response:
        return web.Response(body=await self._metrics.text(), headers=CONTENT_TYPE_HEADER)

    async def _live(self, _request: web.Request) -> web.Response:
        """A failed node ends by itself. One that cannot gives no answer here, and should be
        killed."""
        failure = self._context.node.failure
        if failure is not None:
            return json_response({"status": str(failure)}, HTTPStatus.SERVICE_UNAVAILABLE)
        return json_response({"status": "ok", "node": self._context.config.name})

    async def _ready(self, _request: web.Request) -> web.Response:
        document = {"node": self._context.config.name, "role": role_name(self._context)}
        obstacle = self._obstacle()
        if obstacle is not None:
            return json_response({"status": obstacle, **document}, HTTPStatus.SERVICE_UNAVAILABLE)
        return json_response({"status": "ok", **document})

    def _obstacle(self) -> str | None:
        """Why this node is not ready; None if it is: a leader that may propose, or a follower that
        knows its leader, and nobody has told it to stop."""
        leadership = self._context.node.leadership
        if self._context.node.state_divergence.wrong:
            return str(WrongStateError())
        if self._stops:
            return "stops, and forwards until its clients have gone"
        if leadership.leader is None:
            return "no leader is known"
        if leadership.leader == self._context.config.node and not leadership.serving:
            return "leads, but does not serve yet"
        return None

    async def _status(self, _request: web.Request) -> web.Response:
        return json_response(status_document(self._context))

    async def _topics(self, _request: web.Request) -> web.Response:
        return json_response(await topics_document(self._context))

    async def _groups(self, _request: web.Request) -> web.Response:
        return json_response(await groups_document(self._context))

    async def _waiting(self, _request: web.Request) -> web.Response:
        return json_response(await waiting_messages(self._context))

    async def _audit(self, _request: web.Request) -> web.Response:
        directory = self._context.config.audit_dir
        try:
            found = await asyncio.to_thread(newest_reports, directory) if directory else []
        except OSError as error:
            raise HttpRefusedError(HTTPStatus.SERVICE_UNAVAILABLE, str(error)) from error
        return json_response(audit_document(directory, found))

    async def _recent(self, request: web.Request) -> web.Response:
        since_ms = number(request, "since", 0)
        return json_response(history_document(self._context, self._history.history, since_ms))


async def _description(_request: web.Request) -> web.Response:
    return web.Response(body=_description_bytes(), content_type="application/yaml")


@cache
def _description_bytes() -> bytes:
    return Path(__file__).with_name("openapi.yaml").read_bytes()
