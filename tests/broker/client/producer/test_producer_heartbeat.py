"""Being known to brokers as a producer, where some of them are gone."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from broker.client.client_identity import ClientIdentity
from broker.client.errors import NoReplyError
from broker.client.message import Message, MessageQueue
from broker.client.producer.producer import Producer
from broker.client.producer.producer_heartbeat import HEARTBEAT_SECONDS
from broker.remoting.connection import Connection
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.remoting.protocol.ext_fields import ext_str
from broker.remoting.protocol.frame import Frame
from tests.broker.client.fake_cluster import NAME_SERVER, Broker, Cluster
from tests.support.virtual_network import NetworkedLoop

CONSUMED_SECONDS = 0.05


def replies_to_known(broker: Broker) -> None:
    """It answers each message after a while, where it has been greeted over that connection."""
    known: list[Connection] = []

    def heartbeat(connection: Connection, request: Frame) -> None:
        known.append(connection)
        connection.respond(request)

    def send(connection: Connection, request: Frame) -> None:
        broker._send(connection, request)
        broker.loop.call_later(CONSUMED_SECONDS, reply, connection, ext_str(request, "i"))

    def reply(connection: Connection, properties: str) -> None:
        if connection in known:
            ext = {"properties": properties, "sysFlag": "0"}
            connection.push(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, ext, (b"reply",))

    broker.overrides = {
        RequestCode.HEART_BEAT: heartbeat,
        RequestCode.SEND_MESSAGE_V2: send,
        RequestCode.UNREGISTER_CLIENT: Connection.respond,
    }


async def started(loop: NetworkedLoop, groups: int) -> tuple[Cluster, list[Broker], Producer]:
    cluster = Cluster(loop)
    cluster.topics["T"] = 1
    brokers = await cluster.start(groups)
    for broker in brokers:
        replies_to_known(broker)
    identity = ClientIdentity("10.0.0.9", 77, 1)
    producer = Producer(NAME_SERVER, rng=Random(1), identity=identity)
    await producer.start()
    return cluster, brokers, producer


async def test_a_request_does_not_wait_for_a_host_without_power(loop: NetworkedLoop) -> None:
    cluster, (dead, _, _), producer = await started(loop, 3)
    await dead.kill()
    loop.unreachable.add(dead.port)
    began = loop.time()
    for name in ("broker-b", "broker-c"):
        reply = await producer.request(Message("T", b"?"), queue=MessageQueue("T", name, 0))
        assert reply.body == b"reply"
    assert loop.time() - began < 1
    began = loop.time()
    for _ in range(10):
        await producer.request(Message("T", b"?"), queue=MessageQueue("T", "broker-b", 0))
    assert loop.time() - began < 5
    await asyncio.sleep(5)  # the greeting has failed by now, and nobody waits for another one
    began = loop.time()
    await producer.request(Message("T", b"?"), queue=MessageQueue("T", "broker-b", 0))
    assert loop.time() - began < 2 * CONSUMED_SECONDS
    await producer.close()
    await cluster.close()


async def test_the_others_get_their_heartbeats_while_one_group_is_gone(loop: NetworkedLoop) -> None:
    cluster, (dead, alive), producer = await started(loop, 2)
    await producer.request(Message("T", b"?"), queue=MessageQueue("T", "broker-b", 0))
    await dead.kill()
    loop.unreachable.add(dead.port)
    before = alive.count(RequestCode.HEART_BEAT)
    await asyncio.sleep(10 * HEARTBEAT_SECONDS + 1)
    assert alive.count(RequestCode.HEART_BEAT) - before == 10
    await producer.close()
    await cluster.close()


@pytest.mark.parametrize("remains", ["nothing", "the route"])
async def test_a_group_that_is_gone_for_good_is_looked_for_once_a_heartbeat(
    loop: NetworkedLoop, remains: str
) -> None:
    cluster, (gone, _), producer = await started(loop, 2)
    await producer.request(Message("T", b"?"), queue=MessageQueue("T", "broker-b", 0))
    await gone.kill()
    if remains == "nothing":
        cluster.brokers.remove(gone)
    await asyncio.sleep(3 * HEARTBEAT_SECONDS)
    before = len(cluster.lookups)
    await asyncio.sleep(100 * HEARTBEAT_SECONDS)
    # One for the group, and one because known topics are looked up as often.
    assert len(cluster.lookups) - before <= 202
    await producer.close()
    await cluster.close()


async def test_a_group_that_comes_back_after_hours_is_greeted_when_a_request_goes_there(
    loop: NetworkedLoop,
) -> None:
    cluster, (broker,), producer = await started(loop, 1)
    await producer.request(Message("T", b"?"))
    await broker.kill()
    await asyncio.sleep(3 * 3600 + 1)
    await broker.start()
    reply = await producer.request(Message("T", b"?"))
    assert reply.body == b"reply"
    await producer.close()
    await cluster.close()


async def test_a_leader_that_refuses_heartbeats_is_tried_on(loop: NetworkedLoop) -> None:
    def refuse(connection: Connection, request: Frame) -> None:
        connection.respond(request, ResponseCode.SYSTEM_BUSY, "later")

    cluster, (broker,), producer = await started(loop, 1)
    willing = broker.overrides[RequestCode.HEART_BEAT]
    broker.overrides[RequestCode.HEART_BEAT] = refuse
    with pytest.raises(NoReplyError):
        await producer.request(Message("T", b"?"))
    broker.overrides[RequestCode.HEART_BEAT] = willing
    await asyncio.sleep(1)
    reply = await producer.request(Message("T", b"?"))
    assert reply.body == b"reply"
    await producer.close()
    await cluster.close()
