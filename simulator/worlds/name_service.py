"""A NameServer, and the check of its answers about the broker groups."""

from __future__ import annotations

from collections.abc import Sequence

from broker.nameserver.route_table import RouteTable
from simulator.hosts.broker_host import BrokerHost
from simulator.hosts.client_host import ClientHost
from simulator.invariants.broker.name_server_routes import NameServerRoutes
from simulator.workload.name_server import NAME_SERVER, CheckedNameServer
from simulator.worlds.cluster import Cluster
from simulator.worlds.group import Group
from simulator.worlds.workload import Workload


class NameService(Workload):
    """The machine ``ns``. ``topics``: those that are compared."""

    prepares = True

    def __init__(self, cluster: Cluster[BrokerHost], topics: Sequence[str]) -> None:
        super().__init__()
        self._cluster = cluster
        self._topics = topics
        self._running: CheckedNameServer | None = None
        self._host = ClientHost("ns", NAME_SERVER[0], cluster.environment, self._serve)
        self.client_hosts = [self._host]
        self.invariants = [self.routes_of(cluster)]

    def routes_of(self, group: Group[BrokerHost]) -> NameServerRoutes:
        """A check of its routes of a group."""
        return NameServerRoutes(
            group.group.name,
            hosts=group.hosts,
            name_server=self._host,
            answering=self._tables,
            network=group.network,
            topics=self._topics,
        )

    async def _serve(self, client_host: ClientHost) -> None:
        self._running = CheckedNameServer(
            client_host, *NAME_SERVER, self._cluster.settings.broker.secrets
        )
        await self._running.start()

    def _tables(self) -> RouteTable | None:
        """The tables of the NameServer."""
        return None if self._running is None else self._running.routes
