"""Where a group starts that has committed no offset: with "latest" it loses no message since."""

from __future__ import annotations

import asyncio

import pytest

from broker.client.config import ConsumerConfig
from broker.remoting.connection import Connection
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.remoting.protocol.frame import Frame
from tests.broker.client.consumer.consumers import TOPIC, new_consumer, start, take
from tests.broker.client.consumer.test_consumer import gets_nothing
from tests.broker.client.fake_cluster import NOW_MS
from tests.support.virtual_network import NetworkedLoop


def refuse(connection: Connection, request: Frame) -> None:
    connection.respond(request, ResponseCode.SYSTEM_ERROR, "not now")


async def test_messages_come_again_after_a_crash_before_the_first_commit(
    loop: NetworkedLoop,
) -> None:
    cluster, broker = await start(loop, queues=1)
    broker.store(TOPIC, 0, b"old")
    first = new_consumer(start_from="latest", config=ConsumerConfig(close_seconds=0.1))
    await first.start()
    await asyncio.sleep(1)
    broker.store(TOPIC, 0, b"a", b"b")
    assert await take(first, 2, acknowledge=False) == [b"a", b"b"]
    broker.overrides[RequestCode.UPDATE_CONSUMER_OFFSET] = refuse  # as after a crash
    await first.close()
    broker.overrides.clear()
    async with new_consumer(number=2, start_from="latest") as second, asyncio.timeout(60):
        assert await take(second, 2) == [b"a", b"b"]
    await cluster.close()


async def test_a_queue_is_not_begun_before_its_start_is_committed(loop: NetworkedLoop) -> None:
    cluster, broker = await start(loop, queues=1)
    broker.overrides[RequestCode.UPDATE_CONSUMER_OFFSET] = refuse
    async with new_consumer(start_from="latest") as consumer:
        await asyncio.sleep(5)
        assert broker.count(RequestCode.PULL_MESSAGE) == 0
        assert "not now" in str(consumer.obstacle)
        broker.overrides.clear()
        await asyncio.sleep(2)
        assert consumer.obstacle is None
        assert broker.group.offsets == {("G", TOPIC, 0): 0}
    await cluster.close()


@pytest.mark.parametrize("broadcast", [False, True])
async def test_the_first_message_of_a_queue_that_appears_later_is_delivered(
    loop: NetworkedLoop, broadcast: bool
) -> None:
    cluster, broker = await start(loop, queues=1)
    async with new_consumer(start_from="latest", broadcast=broadcast) as consumer:
        await asyncio.sleep(1)
        cluster.topics[TOPIC] = 2
        broker.store(TOPIC, 1, b"x")
        assert await gets_nothing(consumer, 1)  # the next look-up of the route is not due
        async with asyncio.timeout(60):
            assert await take(consumer, 1) == [b"x"]
    await cluster.close()


async def test_so_is_that_of_a_topic_that_appears_later(loop: NetworkedLoop) -> None:
    cluster, broker = await start(loop, queues=1)
    del cluster.topics[TOPIC]
    async with new_consumer(start_from="latest") as consumer:
        await asyncio.sleep(5)
        cluster.topics[TOPIC] = 1
        broker.store(TOPIC, 0, b"x")
        async with asyncio.timeout(60):
            assert await take(consumer, 1) == [b"x"]
    await cluster.close()


async def test_older_messages_of_a_queue_that_appears_later_are_not(loop: NetworkedLoop) -> None:
    """Its brokers may only have been down."""
    cluster, broker = await start(loop, queues=1)
    broker.overrides[RequestCode.SEARCH_OFFSET_BY_TIMESTAMP] = lambda connection, request: (
        connection.respond(request, ext={"offset": "1"})
        if request.ext["timestamp"] == str(NOW_MS)
        else refuse(connection, request)
    )
    async with new_consumer(start_from="latest") as consumer:
        await asyncio.sleep(1)
        broker.store(TOPIC, 1, b"older", b"x")
        cluster.topics[TOPIC] = 2
        async with asyncio.timeout(60):
            assert await take(consumer, 1) == [b"x"]
    await cluster.close()
