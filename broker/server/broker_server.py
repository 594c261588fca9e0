"""A broker process: a :class:`Broker` on its open data, with ports and registration.

Its environment is passed in (``broker/server/environment.py``), so the simulator runs this assembly
too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, Generic, TypeVar

from broker.config.node_config import NodeConfig
from broker.http.opening import OpeningPort
from broker.http.server import HttpServer
from broker.prometheus.ports import PortMetrics
from broker.remoting.server import RemotingServer
from broker.server.access_setup import server_security
from broker.server.broker import Broker
from broker.server.environment import BrokerLimits, Environment, Wire
from broker.server.name_server_registration import Registrar
from broker.system.uncaught_errors import fatal_error_of
from dledger.node.recovering_node import open_replica
from store.replica import ReplicaStore, StoreConfig

B = TypeVar("B", bound=Broker)


class BrokerServer(Generic[B]):
    """A running broker; see :class:`~dledger.node.service.Service`."""

    def __init__(
        self,
        config: NodeConfig,
        store: ReplicaStore,
        environment: Environment,
        limits: BrokerLimits,
        broker_class: type[B],
        *,
        opening: OpeningPort | None = None,
    ) -> None:
        """``opening`` has the HTTP port until :meth:`start` opens it."""
        loop = environment.loop
        self._store = store
        self._environment = environment
        self.failed: asyncio.Future[BaseException] = loop.create_future()
        """Done, with the reason, once the node has stopped by itself."""
        loop.set_exception_handler(self._unhandled)
        self.broker = broker_class(config, store, environment, self._fail, limits)
        host, port = config.listening.address
        self._remoting = RemotingServer(
            loop,
            host,
            port,
            self.broker.dispatch,
            limits.remoting,
            forward=self.broker.forwarder.take,
            tls=environment.tls,
            clock=environment.clock,
            cpu_clock=environment.cpu_clock,
            vip_port=config.vip_address.port if config.vip_address else None,
        )
        self._registrar = Registrar(
            loop,
            config.namesrv,
            self.broker.announcements.current,
            security=server_security(config, environment),
        )
        self._grpc: Wire | None = None
        wires = {}
        if environment.make_grpc is not None:
            self._grpc = grpc = environment.make_grpc(
                self.broker.context,
                self.broker.announcements.leader_address,
                server_security(config, environment),
            )
            self.broker.serve_brokers(grpc.handlers)
            self.broker.on_leadership.append(grpc.leadership_changed)
            wires["grpc"] = PortMetrics(grpc.connections, grpc.refusals, grpc.forwarded)
        self._opening = opening
        self._http: HttpServer | None = None
        if limits.http:
            remoting, forwarder = self._remoting, self.broker.forwarder
            self._http = HttpServer(
                self.broker.context,
                limits.http,
                environment.tls,
                clock=environment.clock,
                remoting=PortMetrics(
                    lambda: len(remoting.connections),
                    remoting.refusals,
                    lambda: forwarder.forwarded,
                ),
                wires=wires,
                nameservers=self._registrar.states,
            )
            self.broker.on_leadership.append(self._http.leadership_changed)

    async def start(self) -> None:
        """Recovers, joins the group, opens the ports, registers. Raises ``OSError`` if a port is
        taken."""
        await self.broker.start()
        await self._remoting.start()
        if self._grpc is not None:
            await self._grpc.start()
        self.broker.announcements.on_changed = self._registrar.register_now
        self._registrar.start()
        if self._opening is not None:
            await self._opening.stop()
        if self._http is not None:
            await self._http.start()

    async def drain(self) -> None:
        """Transfers the leadership, and forwards requests until the clients have moved: for at most
        ``drain_seconds``, and not at all if no client can still send here.

        Clients of RocketMQ 4 send only to a leader, those of RocketMQ 5 to any node.
        """
        if self._http is not None:
            self._http.leave()
        broker, remoting, grpc = self.broker, self._remoting, self._grpc
        draining, seconds = broker.draining, broker.context.config.drain_seconds
        has_clients: list[Callable[[], bool]] = []
        if await draining.transfer_leadership(seconds):
            has_clients.append(lambda: broker.forwarder.has_clients(remoting.connections))
        if grpc is not None and draining.leads_elsewhere():
            grpc.leave(draining.clients_changed)
            has_clients.append(grpc.has_clients)
        if not any(each() for each in has_clients):
            return
        broker.announcements.on_changed = lambda: None
        await self._registrar.stop()
        remoting.on_closed = draining.clients_changed
        broker.context.delivery.let_go()
        await draining.wait_for_clients(has_clients, seconds)

    async def stop(self) -> None:
        """Unregisters at the NameServers, refuses waiting requests, and writes the data in
        memory."""
        self.broker.announcements.on_changed = lambda: None
        await self._registrar.stop()
        if self._grpc is not None:
            await self._grpc.stop()
        if self._opening is not None:
            await self._opening.stop()
        if self._http is not None:
            await self._http.stop()
        await self.broker.stop()
        await self._remoting.stop()
        self._environment.executors.close()
        self._store.close()  # needed if the node never ran
        self._environment.close()

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Ends the node after an unexpected error, because a half-working node is worse than none.

        Errors of single sockets do not count.
        """
        loop.default_exception_handler(context)
        error = fatal_error_of(context)
        if error is not None:
            self.broker.context.node.fail(error)

    def _fail(self, error: BaseException) -> None:
        if not self.failed.done():
            self.failed.set_result(error)


async def open_broker(
    config: NodeConfig,
    environment: Environment,
    limits: BrokerLimits,
    broker_class: type[B],
) -> BrokerServer[B]:
    """Opens the data of a broker, which the caller then starts. Probes are answered meanwhile.

    Waits for its peers if the log has a hole that they must fill. Raises
    :class:`~store.errors.StoreError` and ``OSError`` if the data cannot be used; the environment is
    closed then.
    """
    opening: OpeningPort | None = None
    async with AsyncExitStack() as unless_opened:
        unless_opened.callback(environment.close)
        unless_opened.callback(environment.executors.close)
        if limits.http:
            opening = OpeningPort(config, environment.loop, limits.http, environment.tls)
            unless_opened.push_async_callback(opening.stop)
            await opening.start()
        store = await open_replica(
            environment.fs,
            config.data,
            StoreConfig(
                config.group,
                config.node,
                config.segment_size,
                min_free_bytes=limits.min_free_bytes,
                index_rows_per_file=limits.index_rows_per_file,
                incarnation=environment.new_incarnation(),
                direct=config.flush == "sync",
                alone=not config.peers,
            ),
            environment.make_transport,
            environment.loop,
            config.peers,
            executor=environment.opener,
            on_hole=environment.on_hole,
        )
        unless_opened.pop_all()
    return BrokerServer(config, store, environment, limits, broker_class, opening=opening)
