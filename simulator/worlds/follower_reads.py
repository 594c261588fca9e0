"""A client that only reads offsets and topics, at any broker: reads by index (thesis 6.4)."""

from __future__ import annotations

from simulator.hosts.broker_host import BrokerHost
from simulator.workload.registers import RegisterClient
from simulator.worlds.cluster import Cluster
from simulator.worlds.messages import TOPICS, Messages
from simulator.worlds.workload import Workload

PAUSE_SECONDS_MAX = 0.3


class FollowerReads(Workload):
    """See the module. Its reads are compared with the writes of :class:`Messages`."""

    targets = ("r2",)

    def __init__(self, cluster: Cluster[BrokerHost]) -> None:
        super().__init__()
        reader = RegisterClient(
            TOPICS[0],
            cluster.workload(Messages).registers,
            cluster.streams.stream("registers 2"),
            pause_max=cluster.settings.added_pauses * PAUSE_SECONDS_MAX,
            at_followers=True,
            write_share=0.0,
        )
        self.client_hosts = [cluster.client_host("r2", "10.0.1.60", reader.main)]
        self.clients = [reader]
