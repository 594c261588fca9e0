"""The environment of a broker. The one of the operating system is in
``broker/server/os_environment.py``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from random import Random
from typing import NamedTuple, Protocol, TypeAlias

from broker.context import BrokerContext
from broker.delivery.fetch import Delivery
from broker.ingest.ingest import Ingest
from broker.limits import HttpLimits, RemotingLimits
from broker.remoting.connection import Handler
from broker.security.cluster_secrets import ClusterSecrets
from broker.security.credentials import ClientSecurity
from broker.security.port_tls import PortTls
from dledger.config import RaftConfig
from dledger.node.executor import Executor, Executors
from dledger.wire.transport import Transport
from store.errors import DamagedError
from store.io.filesystem import FileSystem
from store.log.retention_policy import RetentionPolicy
from store.log.row_files import ROWS_PER_FILE

LeaderAddress: TypeAlias = Callable[[], str | None]
"""The ``host:port`` of the leader; None while no leader is known."""


class Wire(Protocol):
    """A further port for clients. ``handlers`` serve requests of other brokers, by request code of
    the remoting port. ``refusals`` counts refusals by reason. ``leave`` sends clients to the other
    nodes, and calls back whenever one has gone. ``has_clients``: whether some have not gone yet."""

    @property
    def handlers(self) -> Mapping[int, Handler]: ...

    @property
    def refusals(self) -> Mapping[str, int]: ...

    @property
    def leadership_changed(self) -> Callable[[], None]: ...

    @property
    def leave(self) -> Callable[[Callable[[], None]], None]: ...

    def has_clients(self) -> bool: ...

    def connections(self) -> int: ...

    def forwarded(self) -> int: ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


class Environment(NamedTuple):
    """All external parts of a broker, while its data is open.

    ``loop`` gives the time, and opens connections and ports. ``wall_clock`` gives milliseconds
    since 1970, ``clock`` monotonic seconds for latencies, ``cpu_clock`` the CPU seconds of the
    loop's thread (by default ``clock``), ``new_incarnation`` a number that no other disk has.
    ``make_transport`` makes the transport to the peers, one at a time. ``on_hole`` gets a
    description of a hole in the log that peers must fill before the broker starts.
    ``set_log_level`` sets the log level of this process. ``make_ingest`` and ``make_delivery`` make
    ingest and delivery of a broker of their parts, traced or not. ``secrets`` are needed if access
    control is on. ``tls`` is for the ports of clients, if they use TLS. ``make_grpc`` makes the
    gRPC port, if there is one: grpcio has threads and sockets of its own, so it does not run in
    simulations. ``opening`` is the lane in which the data is opened and rebuilt; by default that of
    the log, which has nothing else to do then. ``close`` releases everything, once nothing runs any
    more.
    """

    fs: FileSystem
    make_transport: Callable[[], Transport]
    executors: Executors
    loop: asyncio.AbstractEventLoop
    rng: Random
    wall_clock: Callable[[], int]
    clock: Callable[[], float]
    new_incarnation: Callable[[], int]
    on_hole: Callable[[DamagedError], None] = lambda _error: None
    set_log_level: Callable[[str], None] = lambda _level: None
    make_ingest: Callable[..., Ingest] = Ingest
    make_delivery: Callable[..., Delivery] = Delivery
    close: Callable[[], None] = lambda: None
    secrets: ClusterSecrets | None = None
    tls: PortTls | None = None
    make_grpc: Callable[[BrokerContext, LeaderAddress, ClientSecurity], Wire] | None = None
    cpu_clock: Callable[[], float] | None = None
    opening: Executor | None = None

    @property
    def opener(self) -> Executor:
        """The lane that opens the data."""
        return self.opening or self.executors.log


class BrokerLimits(NamedTuple):
    """Limits that depend on the machine, not on the settings. The simulator's are so small that a
    group reaches them within seconds.

    ``raft`` replaces the limits of the protocol; its times come from the settings. ``retention``
    replaces the retention of the settings. Without ``http`` there is no HTTP port.
    """

    raft: RaftConfig | None = None
    retention: RetentionPolicy | None = None
    remoting: RemotingLimits | None = None
    http: HttpLimits | None = None
    min_free_bytes: int = 64 << 20
    index_rows_per_file: int = ROWS_PER_FILE
