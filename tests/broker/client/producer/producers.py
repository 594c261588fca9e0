"""Producers of a cluster in memory."""

from __future__ import annotations

from random import Random

from broker.client.client_identity import ClientIdentity
from broker.client.config import ProducerConfig
from broker.client.message import MessageQueue
from broker.client.producer.producer import Producer
from tests.broker.client.fake_cluster import NAME_SERVER, NOW_MS, Broker, Cluster
from tests.support.virtual_network import NetworkedLoop

TOPIC = "T"


def new_producer(config: ProducerConfig | None = None) -> Producer:
    return Producer(
        NAME_SERVER,
        config,
        wall_clock=lambda: NOW_MS,
        rng=Random(1),
        identity=ClientIdentity("10.0.0.9", 77, 1),
    )


async def start(
    loop: NetworkedLoop, *, groups: int = 1, queues: int = 4, config: ProducerConfig | None = None
) -> tuple[Cluster, list[Broker], Producer]:
    cluster = Cluster(loop)
    cluster.topics[TOPIC] = queues
    brokers = await cluster.start(groups)
    producer = new_producer(config)
    await producer.start()
    return cluster, brokers, producer


async def stop(cluster: Cluster, producer: Producer) -> None:
    await producer.close()
    await cluster.close()


def queue(queue_id: int, broker: str = "broker-a") -> MessageQueue:
    return MessageQueue(TOPIC, broker, queue_id)
