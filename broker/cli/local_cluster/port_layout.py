"""The addresses of the nodes of a local cluster."""

from __future__ import annotations

import socket
import string
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import NamedTuple

from broker.cli.terminal.numbers import PORT_MAX
from broker.command_error import CommandError, UsageError
from broker.config.node_addresses import Member
from broker.config.node_config import NodeConfig
from dledger.wire.endpoint import Endpoint

HOST = "127.0.0.1"
PORT_STEP = 10
"""The distance of the remoting ports of two nodes, as in RocketMQ's own DLedger examples."""

PEER_PORT_DISTANCE = 4
"""The Raft port is the remoting port plus this. In RocketMQ plus 1 and minus 2 have other uses, and
its DLedger takes 40911 and up. But from there Linux picks the local ports of outgoing connections,
so a restarting node would sometimes find its port taken."""

GRPC_PORT_DISTANCE = 5
"""The gRPC port is the remoting port plus this, next to the Raft port."""

FREE_PORTS = range(20_000, 32_768)
"""The range of free ports: below the ports of outgoing connections, for the same reason."""

GROUPS_MAX = len(string.ascii_lowercase)
NODES_MAX = 9


class Ports(NamedTuple):
    """The first port of each kind; 0: any free port; None: the cluster's present port.

    In a new cluster None is the default port.
    """

    namesrv: int | None = None
    remoting: int | None = None
    http: int | None = None
    grpc: int | None = None


AUDIT = "audit"
"""The directory of audit reports, in the directory of a cluster."""

DEFAULT_PORTS = Ports(9876, 10911, 8080)
"""That of gRPC follows from the remoting port."""


def group_names(count: int) -> list[str]:
    """The names of the groups of a new cluster."""
    return [f"broker-{letter}" for letter in string.ascii_lowercase[:count]]


def plan_cluster(
    directory: Path, nodes: int, groups: Sequence[str], ports: Ports, taken: Collection[int] = ()
) -> list[NodeConfig]:
    """The settings of a cluster in ``directory``, with ``nodes`` brokers in each group.

    Ports in ``taken`` do not count as free.
    """
    with ExitStack() as reserved:
        first = zip(ports, DEFAULT_PORTS, strict=True)
        ports = Ports(*(default if port is None else port for port, default in first))
        allocator = _Allocator(reserved, ports, Random(), taken)
        namesrv = str(allocator.namesrv())
        configs = []
        for place, group in enumerate(groups):
            # On separate machines each node leads a group, so a failed machine stops one leader.
            preferred = f"n{place % nodes}" if len(groups) > 1 else ""
            members = {f"n{k}": allocator.member() for k in range(nodes)}
            configs += [
                NodeConfig(
                    group=group,
                    node=node,
                    data=str(directory.absolute() / group / node),
                    members=members,
                    namesrv=(namesrv,),
                    preferred_leader=preferred,
                    audit_dir=str(directory.absolute() / AUDIT),
                )
                for node in members
            ]
    return configs


def change_ports(directory: Path, found: Sequence[NodeConfig], ports: Ports) -> list[NodeConfig]:
    """The settings of the cluster in ``directory``, with other ports.

    Raises :class:`UsageError` if its members are not those of :func:`plan_cluster`.
    """
    changing = {"http"} if ports.http is not None else set[str]()
    changing |= {"grpc"} if ports.grpc is not None else set()
    changing |= {"peer", "address", "grpc"} if ports.remoting is not None else set()
    staying = {
        endpoint.port
        for config in found
        for kind, endpoint in config.own.endpoints.items()
        if kind not in changing
    }
    if ports.namesrv is None:
        staying |= {Endpoint.parse(each).port for config in found for each in config.namesrv}
    given = Ports(ports.namesrv or 0, ports.remoting or 0, ports.http or 0, ports.grpc)
    groups = sorted({config.group for config in found})
    fresh = plan_cluster(directory, len(found[0].members), groups, given, staying)
    as_planned = {config.name: set(config.members) for config in fresh}
    if {config.name: set(config.members) for config in found} != as_planned:
        raise UsageError(
            f"the cluster in {directory} has had members added or removed: "
            "`up` cannot change its ports; omit them"
        )
    return [
        replace(
            old,
            members={
                node: member._replace(
                    **{kind: getattr(new.members[node], kind) for kind in changing}
                )
                for node, member in old.members.items()
            },
            namesrv=old.namesrv if ports.namesrv is None else new.namesrv,
        )
        for old, new in zip(found, fresh, strict=True)
    ]


def plan_member(address: Endpoint, known: Collection[Member]) -> Member:
    """The addresses of one more node: ``address`` for clients; the others have the next unused
    ports, in the layout of :func:`plan_cluster`."""
    taken = {each.port for member in known for each in member.endpoints.values()} | {address.port}
    first_http = max((member.http.port + 1 for member in known), default=DEFAULT_PORTS.http or 0)
    peer = _next_port(address.port + PEER_PORT_DISTANCE, taken)
    grpc = _next_port(address.port + GRPC_PORT_DISTANCE, taken | {peer})
    http = _next_port(first_http, taken | {peer, grpc})
    return Member(Endpoint(HOST, peer), address, Endpoint(HOST, http), Endpoint(HOST, grpc))


def _next_port(first: int, taken: Collection[int]) -> int:
    for port in range(first, PORT_MAX + 1):
        if port not in taken and why_taken(Endpoint(HOST, port)) is None:
            return port
    raise UsageError(f"there is no free port from {first} to {PORT_MAX}")


def why_taken(endpoint: Endpoint) -> str | None:
    """Why a server cannot listen there now; None if it can."""
    try:
        for family, _, _, _, address in socket.getaddrinfo(*endpoint, type=socket.SOCK_STREAM):
            with socket.socket(family) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
    except OSError as error:
        return error.strerror
    return None


class _Allocator:
    """Allocates endpoints: counted from the first port of a kind, or free ones if that is 0.

    Counting passes over the cluster's own ports, so the kinds may begin next to each other. A free
    port stays bound until ``reserved`` is closed, so no two nodes get the same one.
    """

    def __init__(
        self, reserved: ExitStack, first: Ports, rng: Random, taken: Collection[int] = ()
    ) -> None:
        self._taken = taken
        self._reserved = reserved
        self._first = first
        self._rng = rng
        self._members = 0
        self._counted: set[int] = set()
        self._given = {port for port in first if port}

    def namesrv(self) -> Endpoint:
        return self._endpoint(self._first.namesrv)

    def member(self) -> Member:
        count = self._members
        self._members += 1
        _, remoting, http, grpc = self._first
        if grpc is None:
            grpc = remoting and remoting + count * PORT_STEP + GRPC_PORT_DISTANCE
        else:
            grpc = grpc and grpc + count
        member = Member(
            peer=self._endpoint(remoting and remoting + count * PORT_STEP + PEER_PORT_DISTANCE),
            address=self._endpoint(remoting and remoting + count * PORT_STEP),
            http=self._endpoint(http and http + count),
            grpc=self._endpoint(grpc),
        )
        if max(each.port for each in member.endpoints.values()) > PORT_MAX:
            raise UsageError(f"the ports of node {count + 1} would be above {PORT_MAX}")
        return member

    def _endpoint(self, port: int | None) -> Endpoint:
        if not port:
            return Endpoint(HOST, self._free_port())
        while port in self._counted or port in self._taken:
            port += 1
        self._counted.add(port)
        return Endpoint(HOST, port)

    def _free_port(self) -> int:
        for port in self._rng.sample(FREE_PORTS, 100):
            if port in self._taken or port in self._given:
                continue
            holder = self._reserved.enter_context(socket.socket())
            try:
                holder.bind((HOST, port))
            except OSError:
                continue
            return port
        raise CommandError(f"no free port found from {FREE_PORTS.start} to {FREE_PORTS.stop}")
