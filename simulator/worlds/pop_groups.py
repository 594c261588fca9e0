"""Groups that receive by POP: one in any order, one in FIFO order."""

from __future__ import annotations

from dataclasses import replace

from dledger.wire.features import FEATURES
from simulator.hosts.broker_host import BrokerHost
from simulator.invariants.broker.pop_deliveries import PopDeliveries
from simulator.workload.history import Content, History
from simulator.workload.message_content import content_of
from simulator.workload.pop_member import PAUSE_SECONDS_MAX, PopMember, PopSettings
from simulator.workload.producer import CONFIG, ProducingClient
from simulator.worlds.cluster import Cluster
from simulator.worlds.workload import Workload

TOPIC = "popped"
ANY_ORDER, IN_ORDER = "poppers", "orderly"
MESSAGE_GROUPS = 3
SEND_PAUSE_MAX = 0.5


def content_in_groups(number: int, born_ms: int) -> Content:
    """The usual content, with one of a few message groups."""
    content = content_of(number, born_ms)
    group = f"group {number % MESSAGE_GROUPS}"
    return content._replace(properties={**content.properties, "__SHARDINGKEY": group})


class PopGroups(Workload):
    """See the module. ``k0`` sends, ``k1`` to ``k4`` receive."""

    targets = ("k0", "k1", "k2", "k3", "k4")

    def __init__(self, cluster: Cluster[BrokerHost]) -> None:
        super().__init__()
        self._cluster = cluster
        settings = cluster.settings
        self.history = History(cluster.trace.note)
        self.deliveries = PopDeliveries(TOPIC, (ANY_ORDER, IN_ORDER), (IN_ORDER,))
        self._producing = ProducingClient(
            (TOPIC,),
            self.history,
            cluster.streams.stream("producer for POP"),
            pause_max=settings.added_pauses * SEND_PAUSE_MAX,
            patient=False,
            config=replace(CONFIG, default_queues=2),
            content=content_in_groups,
        )
        self._members = [
            PopMember(
                PopSettings(
                    group, group == IN_ORDER, TOPIC, settings.added_pauses * PAUSE_SECONDS_MAX
                ),
                self.deliveries,
                cluster.streams.stream(f"member {place}"),
            )
            for place, group in enumerate((ANY_ORDER, ANY_ORDER, IN_ORDER, IN_ORDER))
        ]
        mains = [self._producing.main, *[each.main for each in self._members]]
        self.client_hosts = cluster.client_hosts(self.targets, "10.0.5", mains, 0)
        self.clients, self.histories = [self._producing], [self.history]
        self.invariants = [self.deliveries]

    def stop(self) -> None:
        """See :class:`Workload`."""
        super().stop()
        for member in self._members:
            member.hurry()

    def counts(self) -> tuple[int, int]:
        """See :class:`Workload`."""
        return self.history.acknowledged, self.history.unknown

    def delivered(self) -> bool:
        """See :class:`Workload`. Nothing is received while a member has an earlier program."""
        if any(host.features != FEATURES for host in self._cluster.hosts):
            return True
        return all(map(self.deliveries.is_done, (ANY_ORDER, IN_ORDER)))

    async def heal(self) -> None:
        """See :class:`Workload`."""
        if self.deliveries.dead_letters:
            self._cluster.trace.coverage_mark("POP: dead letter")
        if self.deliveries.received_again:
            self._cluster.trace.coverage_mark("POP: received again")
        for member in self._members:
            member.stop()
        await self._cluster.pass_time(4.0)
