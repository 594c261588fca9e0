"""Clients with old routes: a follower forwards their requests to the leader."""

from __future__ import annotations

from dataclasses import replace

from simulator.hosts.broker_host import BrokerHost
from simulator.invariants.broker.message_content import MessageContentKept
from simulator.invariants.broker.message_order import Ordering
from simulator.invariants.broker.stored_messages import StoredMessages
from simulator.workload.history import History
from simulator.workload.producer import CONFIG, ProducingClient
from simulator.workload.stale_routes import HighestProducer, LowestProducer
from simulator.worlds.cluster import Cluster
from simulator.worlds.workload import Workload

TOPIC = "forwarded"
PAUSE_MAX = 0.2


class StaleRoutes(Workload):
    """See the module. ``s0`` and ``s1`` wait for each acknowledgement and keep their order; at
    most one of them sends to the leader."""

    targets = ("s0", "s1")

    def __init__(self, cluster: Cluster[BrokerHost]) -> None:
        super().__init__()
        self._cluster = cluster
        self._history = History(cluster.trace.note)
        settings = cluster.settings
        config = replace(CONFIG, default_queues=settings.queues_per_topic)
        self._producing = [
            ProducingClient(
                (TOPIC,),
                self._history,
                cluster.streams.stream(f"stale producer {place}"),
                pause_max=settings.added_pauses * PAUSE_MAX,
                patient=True,
                config=config,
                producer_class=producer_class,
            )
            for place, producer_class in enumerate((LowestProducer, HighestProducer))
        ]
        mains = [each.main for each in self._producing]
        self.client_hosts = cluster.client_hosts(self.targets, "10.0.4", mains, 0)
        self.clients, self.histories = self._producing, [self._history]
        stored = StoredMessages(cluster.hosts, (TOPIC,))
        ips = {host.name: host.ip for host in self.client_hosts}
        content = MessageContentKept((TOPIC,), ips=ips)
        self._history.listeners += [stored, content, Ordering()]
        self.invariants = [stored, content]

    def counts(self) -> tuple[int, int]:
        """See :class:`Workload`."""
        return self._history.acknowledged, self._history.unknown

    async def heal(self) -> None:
        """See :class:`Workload`. At least one of both clients sends to a follower."""
        await self._cluster.until(
            lambda: all(each.stored_in_the_end for each in self._producing),
            "what is sent to any broker is stored",
        )
