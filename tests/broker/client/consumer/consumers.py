"""Consumers of a cluster in memory."""

from __future__ import annotations

from random import Random

from broker.client.client_identity import ClientIdentity
from broker.client.config import ConsumerConfig
from broker.client.consumer.consumer import Consumer
from broker.client.consumer.fetcher import StartFrom
from broker.client.consumer.message_selector import Sql
from tests.broker.client.fake_cluster import NAME_SERVER, NOW_MS, Broker, Cluster
from tests.support.virtual_network import NetworkedLoop

TOPIC = "T"


def new_consumer(
    *,
    number: int = 1,
    tags: str | Sql = "*",
    start_from: StartFrom = "earliest",
    broadcast: bool = False,
    config: ConsumerConfig | None = None,
) -> Consumer:
    return Consumer(
        NAME_SERVER,
        "G",
        {TOPIC: tags},
        start_from=start_from,
        broadcast=broadcast,
        config=config,
        wall_clock=lambda: NOW_MS,
        rng=Random(number),
        identity=ClientIdentity("10.0.0.9", 77, number),
    )


async def start(loop: NetworkedLoop, *, queues: int = 2, groups: int = 1) -> tuple[Cluster, Broker]:
    cluster = Cluster(loop)
    cluster.topics[TOPIC] = queues
    broker, *_ = await cluster.start(groups)
    return cluster, broker


async def take(consumer: Consumer, count: int, *, acknowledge: bool = True) -> list[bytes]:
    """The bodies of the next ``count`` messages; it must be whole batches."""
    bodies: list[bytes] = []
    while len(bodies) < count:
        batch = await consumer.next_batch()
        bodies += [message.body for message in batch]
        if acknowledge:
            consumer.acknowledge(batch.queue, batch.next_offset)
    assert len(bodies) == count
    return bodies
