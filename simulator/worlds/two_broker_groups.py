"""A second broker group behind the same NameServer, with topics over both.

Each group has its own faults, and its own set of all checks. The clients are those of both.
"""

from __future__ import annotations

from simulator.hosts.broker_host import BrokerHost
from simulator.hosts.client_host import ClientHost
from simulator.hosts.observed_host import GroupConfig
from simulator.invariants.broker.stored_by_one_group import StoredByOneGroup
from simulator.workload.history import History
from simulator.workload.two_groups import TopicMaker, TwoGroupsHistory
from simulator.worlds.cluster import Cluster
from simulator.worlds.group import Group
from simulator.worlds.messages import TOPICS, MessageChecks, Messages
from simulator.worlds.name_service import NameService
from simulator.worlds.workload import Workload

OTHER = "broker-b"
OTHER_SUBNET = "10.0.10"
FIRST = 10
"""The number of its first host: no two machines have the same name."""


class SecondGroup(Workload):
    """See the module. Its client makes the topics at both groups before any client looks, because
    clients ask for routes seldom."""

    prepares = True
    targets = ("x0",)

    def __init__(self, cluster: Cluster[BrokerHost]) -> None:
        super().__init__()
        self._cluster = cluster
        self._maker = TopicMaker(
            groups=(cluster.group.name, OTHER),
            topics=TOPICS,
            queues=cluster.settings.queues_per_topic,
            rng=cluster.streams.stream("making topics"),
            made=lambda: cluster.loop.soon(cluster.prepared),
        )
        self.client_hosts = [ClientHost("x0", "10.0.1.80", cluster.environment, self._maker.main)]
        self.group = self._make_group()
        cluster.groups.append(self.group)

        messages, names = cluster.workload(Messages), cluster.workload(NameService)
        self.group.workloads += [names, messages]
        history = History(cluster.trace.note)
        self._checks = MessageChecks(self.group.hosts, history)
        assert isinstance(messages.history, TwoGroupsHistory)  # noqa: S101 - of that world
        messages.history.others[OTHER] = history
        shared = StoredByOneGroup(messages.history, TOPICS)
        self.invariants = [shared]
        self.group.invariants += [*self._checks.invariants, names.routes_of(self.group), shared]

    def _make_group(self) -> Group[BrokerHost]:
        cluster, stream = self._cluster, self._cluster.streams.stream
        rng = stream("cluster of the other group")
        config = GroupConfig(
            voters=[f"n{FIRST + place}" for place in range(len(cluster.hosts))],
            raft=cluster.kind.raft_config(rng, cluster.settings),
            segment_size=rng.choice(cluster.kind.segment_sizes),
            name=OTHER,
            subnet=OTHER_SUBNET,
        )
        return Group(
            cluster.kind,
            cluster.settings,
            config,
            cluster.environment,
            schedule=cluster.schedule,
            faults=(cluster.plan, stream("faults of the other group")),
        )

    def is_prepared(self) -> bool:
        """See :class:`Workload`."""
        return self._maker.done

    def delivered(self) -> bool:
        """See :class:`Workload`."""
        return self._checks.delivered()

    async def heal(self) -> None:
        """See :class:`Workload`."""
        await self._cluster.until(self.is_prepared, "all topics are made")
