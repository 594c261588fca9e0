"""A NameServer names the leader soon after all faults ended (docs/safety.md, promise 7).

The right answer follows from what was seen: who leads, since when that and the NameServer run, and
that nothing is wrong between them. The check runs as the leader sends its heartbeats.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dledger.raft.messages import Heartbeat
from dledger.raft.raft_state import Role
from dledger.wire.transport import Message
from simulator.engine.violation import Violation
from simulator.invariants.invariant import Invariant
from store.log.entry import Entry, EntryKind
from store.message.batch import decode_batch

if TYPE_CHECKING:
    from broker.nameserver.route_table import RouteTable
    from simulator.engine.peer_network import Network
    from simulator.faults.schedule import Action
    from simulator.hosts.client_host import ClientHost
    from simulator.hosts.host import Host

ROUTE_SECONDS = 3.0
"""A broker that a NameServer forgot registers again after a second; then it takes round trips."""

LOOK_SECONDS = 0.5
"""Heartbeats are more frequent: if two are further apart, the leader did not run between them."""

CALM_DELAY_SECONDS = 0.02
LEADER_ID = 0


class NameServerRoutes(Invariant):
    """Follows one broker group and one NameServer.

    ``answering`` gives what that answers from. ``topics`` are never deleted.
    """

    sent_kinds = (Heartbeat,)

    def __init__(
        self,
        group: str,
        *,
        hosts: Sequence[Host],
        name_server: ClientHost,
        answering: Callable[[], RouteTable | None],
        network: Network,
        topics: Sequence[str],
    ) -> None:
        self._group = group
        self._hosts = hosts
        self._name_server = name_server
        self._answering = answering
        self._network = network
        self._topics = topics
        self._stored: dict[str, float] = {}
        """Topics that have a message, since when."""
        self._applied: dict[str, tuple[int, int]] = {}
        """By host: the process, and the term of the last entry that it applied."""
        self._stopping: dict[str, int] = {}
        """By host the process that was asked to stop: it unregisters first."""
        self._calm: tuple[object, ...] = ()
        self._since = self._looked_at = 0.0

    def acted(self, action: Action) -> None:
        """See :class:`Invariant`."""
        if action.name == "stop":
            self._stopping.update(
                (host.name, host.boot) for host in self._hosts if host.name in action.arguments
            )

    def applies(self, host: Host, entry: Entry, _digest: bytes) -> None:
        """See :class:`Invariant`."""
        self._applied[host.name] = (host.boot, entry.term)
        if entry.kind is EntryKind.DATA and len(self._stored) < len(self._topics):
            for run in decode_batch(entry.body).runs:
                if run.topic in self._topics:
                    self._stored.setdefault(run.topic, host.now)

    def sends(self, host: Host, _peer: str, _message: Message) -> None:
        """See :class:`Invariant`."""
        calm, now = self._calm_of(host), host.now
        if calm != self._calm or now - self._looked_at > LOOK_SECONDS:
            self._calm, self._since = calm, now
        self._looked_at = now
        answering = self._answering()
        if calm and answering is not None and now - self._since >= ROUTE_SECONDS:
            host.coverage_mark("NameServer asked in a calm phase")
            self._check(host, answering)

    def _calm_of(self, host: Host) -> tuple[object, ...]:
        """The leader of each term, and the processes of both; nothing if something is wrong."""
        node, names = host.node, self._name_server
        if node is None or node.core.role is not Role.LEADER or names.process is None:
            return ()
        if self._stopping.get(host.name) == host.boot:
            return ()
        core, network = node.core, self._network
        cut = network.cuts(host.name, names.name) or network.cuts(names.name, host.name)
        late = network.is_late(host.name, names.name)
        if cut or late or network.faults.loss or network.faults.delay_max > CALM_DELAY_SECONDS:
            return ()
        terms = [each.node.core.term for each in self._hosts if each.node is not None]
        if self._applied.get(host.name) != (host.boot, core.term):
            return ()  # it does not serve yet: no entry of its own is committed
        if max(terms) > core.term or host.name not in core.configuration.voters:
            return ()
        return (host.name, host.boot, core.term, names.boot)

    def _check(self, host: Host, answering: RouteTable) -> None:
        tables = [("the cluster", answering.cluster_info()["brokerAddrTable"].get(self._group))]
        for topic, stored_at in self._stored.items():
            if stored_at <= self._since:
                route = answering.route(topic) or {"brokerDatas": ()}
                tables.append((topic, _named(self._group, route["brokerDatas"])))
        for what, data in tables:
            told = None if data is None else data["brokerAddrs"].get(LEADER_ID)
            if told != host.addresses[1]:
                seconds = host.now - self._since
                raise Violation(
                    f"{self._name_server.name} names "
                    f"{'no leader' if told is None else f'{told}, not {host.name}, as the leader'} "
                    f"of {self._group} for {what}, though {host.name} has led without a fault for "
                    f"{seconds:.1f} s"
                )


def _named(group: str, brokers: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    return next((each for each in brokers if each["brokerName"] == group), None)
