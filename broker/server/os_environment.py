"""A broker's environment on an operating system: files, threads, clocks, randomness and sockets."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from random import SystemRandom

from broker.config.node_config import NodeConfig
from broker.context import BrokerContext
from broker.delivery.fetch import Delivery
from broker.ingest.batch_body import take_alike, take_alike_in_python
from broker.ingest.ingest import Ingest
from broker.limits import HTTP
from broker.security.credentials import ClientSecurity
from broker.server.broker import Broker
from broker.server.broker_server import BrokerServer, open_broker
from broker.server.environment import BrokerLimits, Environment, LeaderAddress, Wire
from broker.server.security_setup import read_peer_security, read_port_tls, read_secrets
from broker.system.file_descriptor_limits import (
    DescriptorLimits,
    connections_of_broker,
    raise_file_limit,
)
from broker.system.server_log import set_level
from broker.system.wall_clock import system_clock_ms
from dledger.config import PeerLimits
from dledger.node.executor import Executors, ThreadExecutor
from dledger.node.service import start_service
from dledger.raft.configuration import FIRST_INCARNATION
from dledger.wire.peer_identity import PeerSecurity
from dledger.wire.transport import Transport
from dledger.wire.websocket_transport import WebSocketTransport
from store.io.async_io import AsyncWrites
from store.io.descriptor_reserve import DescriptorReserve
from store.io.os_filesystem import OsFileSystem

log = logging.getLogger("dledger.broker")

NUMPY_SECONDS = 0.5
"""Pace: after this time a node loads NumPy. It has joined its group by then, as a rule: the import
holds the interpreter's lock."""


async def serve(config: NodeConfig) -> BrokerServer[Broker]:
    """Starts a broker.

    Waits for its peers if its log has a hole that they must fill. Raises
    :class:`~store.errors.StoreError` if its data cannot be used, ``OSError`` if a port is taken,
    and :class:`~broker.config.setting_checks.ConfigError` if the files of ``[security]`` cannot be
    used; nothing keeps running then.
    """
    if take_alike is take_alike_in_python:
        log.info("the loops over messages are not compiled: batches take more CPU time")
    usual = DescriptorLimits()
    connections = connections_of_broker(raise_file_limit(usual), usual)
    limits = BrokerLimits(
        remoting=connections.remoting, http=HTTP._replace(connections_max=connections.http)
    )
    security = read_peer_security(config)

    async def open_it() -> BrokerServer[Broker]:
        environment = os_environment(config, connections.peers, security)
        return await open_broker(config, environment, limits, Broker)

    return await start_service(open_it)


def os_environment(
    config: NodeConfig, peers_max: int, peer_security: PeerSecurity | None
) -> Environment:
    """The environment on the running loop. ``peers_max`` limits the connections on the peers' port.

    Raises :class:`~broker.config.setting_checks.ConfigError` if the cluster's secret or the
    certificate cannot be used.
    """
    secrets, tls = read_secrets(config.security), read_port_tls(config.security, config.name)
    loop = asyncio.get_running_loop()
    rng = SystemRandom()
    writes = AsyncWrites.open(loop.time) if config.flush == "sync" else None
    if writes is not None:
        loop.add_reader(writes.fileno(), writes.completed)
    fs = OsFileSystem(writes, DescriptorReserve())
    executors = Executors(*(ThreadExecutor(loop, name) for name in ("log", "reads", "background")))
    # Keys are sorted by NumPy. Loaded later, it might find no free descriptor.
    load_numpy = partial(import_module, "numpy")
    loop.call_later(NUMPY_SECONDS, executors.background.submit, load_numpy, lambda *_: None)

    make_ingest, make_delivery, end_tracing = _flows(config)

    def close() -> None:
        end_tracing()
        if writes is not None:
            loop.remove_reader(writes.fileno())
            writes.close()
        fs.close()

    return Environment(
        secrets=secrets,
        tls=tls,
        make_grpc=_grpc(config),
        fs=fs,
        make_transport=_transports(config, peers_max, peer_security),
        executors=executors,
        loop=loop,
        rng=rng,
        wall_clock=system_clock_ms,
        clock=time.monotonic,
        cpu_clock=time.thread_time,
        new_incarnation=lambda: rng.randrange(FIRST_INCARNATION, 1 << 62),
        set_log_level=set_level,
        make_ingest=make_ingest,
        make_delivery=make_delivery,
        close=close,
    )


def _grpc(
    config: NodeConfig,
) -> Callable[[BrokerContext, LeaderAddress, ClientSecurity], Wire] | None:
    """The factory of the gRPC port; None if the node has none.

    Raises :class:`~broker.config.setting_checks.ConfigError` if its certificate cannot be used.
    """
    endpoint = config.listening.grpc
    if endpoint is None:
        return None
    # grpcio takes 0.1 s to import, and a node without that port does not need it.
    from broker.grpc.port import GrpcPort  # noqa: PLC0415 - see above
    from broker.grpc.tls import grpc_tls  # noqa: PLC0415 - see above

    return partial(GrpcPort, endpoint, grpc_tls(config.security, config.name))


def _flows(
    config: NodeConfig,
) -> tuple[Callable[..., Ingest], Callable[..., Delivery], Callable[[], None]]:
    """The factories of ingest and delivery, and a function that ends their tracing."""
    if not config.tracing:
        return Ingest, Delivery, lambda: None
    # An optional package: a node without tracing does not need it.
    from broker.tracing.otlp_export import open_tracer  # noqa: PLC0415 - see above
    from broker.tracing.traced_flows import TracedDelivery, TracedIngest  # noqa: PLC0415 - see above

    tracer, close = open_tracer(config.tracing, config.cluster, config.name)
    return partial(TracedIngest, tracer), partial(TracedDelivery, tracer), close


def _transports(
    config: NodeConfig, connections_max: int, security: PeerSecurity | None
) -> Callable[[], Transport]:
    usual = PeerLimits()
    limits = usual._replace(ungreeted_max=min(usual.ungreeted_max, connections_max // 2))
    return lambda: WebSocketTransport(
        group=config.group,
        node=config.node,
        host=config.listening.peer.host,
        port=config.listening.peer.port,
        address=str(config.own.peer),
        peers=config.peers,
        limits=limits,
        security=security,
    )
