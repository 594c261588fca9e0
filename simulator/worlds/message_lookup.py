"""A whole cluster with a client that looks messages up at any broker: by key, position and time.

A world of its own, so that the seeds of the others go on meaning what they mean.
"""

from __future__ import annotations

from collections.abc import Sequence

from simulator.engine.random_streams import CountingRandom
from simulator.hosts.client_host import ClientHost
from simulator.invariants import Invariant
from simulator.invariants.broker.message_lookup import MessageLookups
from simulator.workload.message_lookup import PAUSE_SECONDS_MAX, MessageLookupClient
from simulator.worlds.broker_cluster import TOPICS, BrokerCluster


class MessageLookupCluster(BrokerCluster):
    """See the module."""

    target_clients = (*BrokerCluster.target_clients, "l0")

    def _make_clients(self, rng: CountingRandom) -> None:
        super()._make_clients(rng)
        self._known = MessageLookups(TOPICS)
        self._looking = MessageLookupClient(
            self.name_servers,
            TOPICS[0],
            self._known,
            self.streams.stream("looking up"),
            pause_max=self.added_pauses * PAUSE_SECONDS_MAX,
        )
        self.clients.append(
            ClientHost("l0", "10.0.1.70", self.environment, self._looking.main, self._client_ended)
        )

    def _make_invariants(self) -> Sequence[Invariant]:
        return [*super()._make_invariants(), self._known]

    def _stop_clients(self) -> None:
        super()._stop_clients()
        self._looking.stop()
