"""Two broker groups behind one NameServer, with topics over both, and the clients of both.

Each group has its own faults, and its own set of all checks. A world of its own, so that the seeds
of the others go on meaning what they mean.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.client.route.route_cache import POLL_SECONDS
from simulator.engine.random_streams import CountingRandom
from simulator.faults.crash_on_delivery import CrashOnDelivery
from simulator.faults.fault_atlas import FaultAtlas
from simulator.faults.injector import FaultInjector
from simulator.faults.schedule import Action
from simulator.hosts.client_host import ClientHost
from simulator.hosts.host import Host
from simulator.hosts.observed_host import GroupConfig
from simulator.invariants import Invariant
from simulator.invariants.broker.name_server_routes import NameServerTables
from simulator.invariants.broker.stored_by_one_group import StoredByOneGroup
from simulator.workload.history import History
from simulator.workload.two_groups import TopicMaker, TwoGroupsHistory
from simulator.worlds.broker_cluster import TOPICS, BrokerCluster
from simulator.worlds.raft_cluster import HEALING_SECONDS, Cluster

OTHER = "broker-b"
OTHER_SUBNET = "10.0.10"
FIRST = 10
"""The number of its first host: no two machines have the same name."""


class SecondGroup(BrokerCluster):
    """Hosts of a second group in the world of the first. Its clients are those of the first."""

    def __init__(self, first: BrokerCluster, shared: Sequence[Invariant]) -> None:
        """``shared``: the checks that are told of both groups."""
        # Not as a cluster is made: it has no loop, no network and no clients of its own.
        self.first = first
        self.seed, self.streams, self.trace = first.seed, first.streams, first.trace
        self.loop, self.network, self.sockets = first.loop, first.network, first.sockets
        self.environment, self.schedule, self.plan = first.environment, first.schedule, first.plan
        rng = self.streams.stream("cluster of the other group")
        self.group = GroupConfig(
            voters=[f"n{FIRST + place}" for place in range(len(first.hosts))],
            raft=self._raft_config(rng),
            segment_size=rng.choice(self.segment_sizes),
            name=OTHER,
            subnet=OTHER_SUBNET,
        )
        faults_rng = self.streams.stream("faults of the other group")
        self.injector = FaultInjector(self, self.plan, self.faults, faults_rng)
        self.hosts = self._make_hosts()
        self._by_name: dict[str, Host] = {host.name: host for host in self.hosts}
        self.history = History(self.trace.note)
        self.crash_on_delivery = CrashOnDelivery(self)
        self.name_server = first.name_server
        self.invariants = [*self._make_invariants(), *shared]
        for host in self.hosts:
            host.watch(self.invariants)
        self.atlas = FaultAtlas(len(self.hosts))

    def names_known(self) -> NameServerTables | None:
        """See :class:`BrokerCluster`."""
        return self.first.names_known()

    def client_hosts_named(self, name: str) -> Sequence[ClientHost]:
        """See :class:`Cluster`."""
        return self.first.client_hosts_named(name)

    def ask_at_once(self, _host: Host, _is_write: bool) -> None:
        """See :class:`Cluster`. No client reads offsets and topics of this group."""

    def all_delivered(self) -> bool:
        """Whether the readers have all that this group has stored for them."""
        return self._all_delivered()


class TwoGroupsCluster(BrokerCluster):
    """See the module."""

    target_clients = (*BrokerCluster.target_clients, "x0")
    queues_per_topic = 2
    healing_seconds = HEALING_SECONDS + POLL_SECONDS
    """A client that asked for a route while one group was not registered asks again so late."""

    def _make_clients(self, rng: CountingRandom) -> None:
        super()._make_clients(rng)
        self._maker = TopicMaker(
            self.name_servers,
            groups=(self.group.name, OTHER),
            topics=TOPICS,
            queues=self.queues_per_topic,
            rng=self.streams.stream("making topics"),
            made=lambda: self.loop.soon(super(TwoGroupsCluster, self)._start_clients),
        )
        self._operator = ClientHost("x0", "10.0.1.80", self.environment, self._maker.main)
        self.clients.append(self._operator)

    def _start_clients(self) -> None:
        """Topics are at both groups before anybody looks: clients ask for routes seldom."""
        self.name_server.start()
        self._operator.start()

    async def _heal_clients(self) -> None:
        for client_host in (self.name_server, self._operator):
            client_host.resume()
            client_host.start()
        await self.until(lambda: self._maker.done, "all topics are made")
        await super()._heal_clients()

    def _make_history(self) -> History:
        self._told_of_both = TwoGroupsHistory(self.trace.note)
        return self._told_of_both

    def _make_invariants(self) -> Sequence[Invariant]:
        shared = [StoredByOneGroup(self.history, TOPICS)]
        invariants = [*super()._make_invariants(), *shared]
        self.other = SecondGroup(self, shared)
        self._told_of_both.others[OTHER] = self.other.history
        return invariants

    @property
    def groups(self) -> Sequence[Cluster]:
        """See :class:`Cluster`."""
        return (self, self.other)

    def group_of(self, action: Action) -> Cluster:
        """See :class:`Cluster`. What is done to no host is done to all that both have in common."""
        names = {word for each in action.arguments for word in str(each).split(",")}
        return self.other if names & {host.name for host in self.other.hosts} else self

    def _all_delivered(self) -> bool:
        return super()._all_delivered() and self.other.all_delivered()
