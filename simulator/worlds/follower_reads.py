"""A whole cluster whose clients read offsets and topics at any broker: reads by index (thesis 6.4).

A world of its own, so that the seeds of the others go on meaning what they mean.
"""

from __future__ import annotations

from simulator.engine.random_streams import CountingRandom
from simulator.hosts.client_host import ClientHost
from simulator.workload.registers import RegisterClient
from simulator.worlds.broker_cluster import TOPICS, BrokerCluster

PAUSE_SECONDS_MAX = 0.3


class FollowerReadsCluster(BrokerCluster):
    """See the module."""

    reads_at_followers = True
    target_clients = (*BrokerCluster.target_clients, "r2")

    def _make_clients(self, rng: CountingRandom) -> None:
        """One client more, which only reads."""
        super()._make_clients(rng)
        reader = RegisterClient(
            self.name_servers,
            TOPICS[0],
            self.registers,
            self.streams.stream("registers 2"),
            pause_max=self.added_pauses * PAUSE_SECONDS_MAX,
            at_followers=True,
            write_share=0.0,
        )
        self._asking.append(reader)
        self.clients.append(
            ClientHost("r2", "10.0.1.60", self.environment, reader.main, self._client_ended)
        )
