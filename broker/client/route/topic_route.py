"""The route of a topic: its queues, and the brokers that have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from broker.client.message import MessageQueue
from broker.remoting.protocol.java_json import decode_json

QUEUES_MAX = 65_536
"""The most queues of a topic on one broker. A list of so many takes milliseconds."""

LEADER_ID = 0
PERM_READ = 4
PERM_WRITE = 2


class TopicRoute(NamedTuple):
    """A topic's queues, sorted, and the addresses of their brokers by name and id."""

    topic: str
    write_queues: tuple[MessageQueue, ...]
    read_queues: tuple[MessageQueue, ...]
    brokers: Mapping[str, Mapping[int, str]]

    def leader(self, broker: str) -> str | None:
        """The address of the group's leader, None while there is none."""
        return self.brokers.get(broker, {}).get(LEADER_ID)

    @property
    def is_led(self) -> bool:
        """Whether any queue has a leader."""
        return any(LEADER_ID in addresses for addresses in self.brokers.values())

    def leaders(self) -> dict[str, str]:
        """The known leaders, by broker name."""
        return {
            broker: addresses[LEADER_ID]
            for broker, addresses in self.brokers.items()
            if LEADER_ID in addresses
        }


def decode_route(topic: str, body: bytes) -> TopicRoute:
    """``TopicRouteData`` as a route; integer keys may be bare.

    Raises ``ValueError``, ``KeyError``, ``TypeError`` or ``AttributeError`` if it is not a route.
    """
    document = decode_json(body)
    brokers = {
        str(data["brokerName"]): {
            int(broker_id): str(address) for broker_id, address in data["brokerAddrs"].items()
        }
        for data in document["brokerDatas"]
    }
    write_queues: list[MessageQueue] = []
    read_queues: list[MessageQueue] = []
    for data in document["queueDatas"]:
        broker = str(data["brokerName"])
        if data["perm"] & PERM_WRITE:
            write_queues += _queues(topic, broker, data["writeQueueNums"])
        if data["perm"] & PERM_READ:
            read_queues += _queues(topic, broker, data["readQueueNums"])
    return TopicRoute(topic, tuple(sorted(write_queues)), tuple(sorted(read_queues)), brokers)


def _queues(topic: str, broker: str, count: int) -> list[MessageQueue]:
    if not 0 <= count <= QUEUES_MAX:
        raise ValueError(f"{topic} has {count} queues on {broker}, not 0 to {QUEUES_MAX}")
    return [MessageQueue(topic, broker, queue_id) for queue_id in range(count)]
