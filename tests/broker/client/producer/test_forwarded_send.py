"""A send that a follower forwarded shows that the route is old."""

from __future__ import annotations

import asyncio

from broker.client.message import Message
from broker.remoting.connection import Connection
from broker.remoting.protocol.codes import LEADER, RequestCode
from broker.remoting.protocol.frame import Frame
from tests.broker.client.fake_cluster import Broker
from tests.broker.client.producer.producers import TOPIC, queue, start, stop
from tests.support.virtual_network import NetworkedLoop


def forwards(follower: Broker, leader: Broker) -> None:
    """The follower answers sends with what the leader says."""

    def send(connection: Connection, request: Frame) -> None:
        first, ids = leader.group.append(TOPIC, 0, [(request.body, b"")])
        ext = {"msgId": ids[0], "queueId": "0", "queueOffset": str(first), LEADER: leader.address}
        connection.respond(request, ext=ext)

    follower.leading = False
    follower.overrides[RequestCode.SEND_MESSAGE_V2] = send


async def test_the_next_send_goes_to_the_leader(loop: NetworkedLoop) -> None:
    cluster, (old,), producer = await start(loop)
    await producer.send(Message(TOPIC, b"one"), queue(0))
    new = await cluster.add(old.group)
    forwards(old, new)
    before = loop.time()
    assert (await producer.send(Message(TOPIC, b"two"), queue(0))).queue_offset == 1
    while not new.count(RequestCode.SEND_MESSAGE_V2):
        await producer.send(Message(TOPIC, b"more"), queue(0))
        await asyncio.sleep(0.01)
    assert loop.time() < before + 0.1
    await stop(cluster, producer)


async def test_many_forwarded_sends_cost_few_lookups(loop: NetworkedLoop) -> None:
    cluster, (old,), producer = await start(loop)
    await producer.send(Message(TOPIC, b"one"), queue(0))
    new = await cluster.add(old.group)
    forwards(old, new)
    old.leading = True  # by what the NameServer knows
    new.leading = False
    cluster.lookups.clear()
    until = loop.time() + 10
    while loop.time() < until:
        await producer.send(Message(TOPIC, b"more"), queue(0))
        await asyncio.sleep(0.01)
    assert 5 < len(cluster.lookups) < 60
    await stop(cluster, producer)
