"""A client's routes to a cluster in memory."""

from __future__ import annotations

from random import Random

from broker.client.route.route_cache import Routes
from broker.remoting.client import RemotingClient
from tests.broker.client.fake_cluster import NAME_SERVER, Broker, Cluster
from tests.support.virtual_network import NetworkedLoop


async def start(loop: NetworkedLoop, *extra: str) -> tuple[Cluster, Broker, Routes]:
    cluster = Cluster(loop)
    cluster.topics["T"] = 2
    (broker,) = await cluster.start()
    routes = Routes(loop, RemotingClient(loop), [*extra, NAME_SERVER], Random(1))
    return cluster, broker, routes
