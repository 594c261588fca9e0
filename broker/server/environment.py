"""The surroundings of a broker. The operating system's is in
``broker/server/os_environment.py``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Protocol, TypeAlias

from broker.context import BrokerContext
from broker.delivery.fetch import Delivery
from broker.ingest.ingest import Ingest
from broker.limits import HttpLimits, RemotingLimits
from broker.remoting.connection import Handler
from broker.security.cluster_secrets import ClusterSecrets
from broker.security.credentials import ClientSecurity
from broker.security.port_tls import PortTls
from dledger.config import RaftConfig
from dledger.node.executor import Executors
from dledger.wire.transport import Transport
from store.errors import DamagedError
from store.io.filesystem import FileSystem
from store.log.entry_index import ROWS_PER_FILE
from store.log.retention_policy import RetentionPolicy

LeaderAddress: TypeAlias = Callable[[], str | None]
"""The ``host:port`` of the member that leads; None while none is known."""


class Wire(Protocol):
    """One more port to clients. ``handlers`` are those for other brokers, by request code of the
    remoting port. ``refusals`` counts by reason. ``leave`` sends clients to the other nodes, and
    tells whenever one has gone; ``has_clients`` then: some have not."""

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


@dataclass(frozen=True, slots=True)
class Environment:
    """All external parts of a broker, while its data is open.

    ``loop`` gives the time, and opens connections and ports. ``wall_clock`` gives milliseconds
    since 1970, ``clock`` seconds for latencies that never run backward, ``cpu_clock`` the seconds
    that the loop's thread ran (by default ``clock``), ``new_incarnation`` a number that no other
    disk has. ``make_transport`` gives a connection to the peers, one at a time. ``on_hole`` is told
    what is wrong with a log that peers must fill before the broker starts. ``set_log_level`` sets
    how much this process logs. ``make_ingest`` and ``make_delivery`` make the two doors of a broker
    of their parts, traced or not. ``secrets`` are needed if access control is on. ``tls`` is that
    of the ports of clients, if they speak it. ``make_grpc`` makes the gRPC port, if there is one:
    grpcio has threads and sockets of its own, so it runs in no simulation. ``close`` releases
    everything, when nothing runs any more.
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


@dataclass(frozen=True, slots=True)
class BrokerLimits:
    """Limits that follow from the machine, not from the settings. The simulator's are so small
    that a group meets them within seconds.

    ``raft`` replaces the limits of the protocol; its times are those of the settings. ``retention``
    replaces that of the settings. Without ``http`` there is no HTTP port.
    """

    raft: RaftConfig | None = None
    retention: RetentionPolicy | None = None
    remoting: RemotingLimits | None = None
    http: HttpLimits | None = None
    min_free_bytes: int = 64 << 20
    index_rows_per_file: int = ROWS_PER_FILE
