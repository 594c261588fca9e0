"""A client that looks messages up at any broker: by key, position and time."""

from __future__ import annotations

from simulator.hosts.broker_host import BrokerHost
from simulator.invariants.broker.message_lookup import MessageLookups
from simulator.workload.message_lookup import PAUSE_SECONDS_MAX, MessageLookupClient
from simulator.worlds.cluster import Cluster
from simulator.worlds.messages import TOPICS
from simulator.worlds.workload import Workload


class MessageLookup(Workload):
    """See the module."""

    targets = ("l0",)

    def __init__(self, cluster: Cluster[BrokerHost]) -> None:
        super().__init__()
        known = MessageLookups(TOPICS)
        looking = MessageLookupClient(
            TOPICS[0],
            known,
            cluster.streams.stream("looking up"),
            pause_max=cluster.settings.added_pauses * PAUSE_SECONDS_MAX,
        )
        self.client_hosts = [cluster.client_host("l0", "10.0.1.70", looking.main)]
        self.clients = [looking]
        self.invariants = [known]
