"""Message by message: iteration, what is sent back, and going back in time."""

from __future__ import annotations

import asyncio

import pytest

from broker.client.config import ConsumerConfig
from broker.client.consumer.consumer import Consumer
from broker.client.errors import RefusedError
from broker.remoting.connection import Connection
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.remoting.protocol.frame import Frame
from tests.broker.client.consumer.consumers import TOPIC, new_consumer, start
from tests.broker.client.fake_cluster import NAME_SERVER, NOW_MS
from tests.support.virtual_network import NetworkedLoop


async def take(consumer: Consumer, count: int) -> list[bytes]:
    """Leaves the loop at the last one, which so is not acknowledged."""
    bodies: list[bytes] = []
    async for message in consumer.messages():
        bodies.append(message.body)
        if len(bodies) == count:
            break
    return bodies


async def test_asking_for_the_next_message_acknowledges_the_one_before(loop: NetworkedLoop) -> None:
    cluster, broker = await start(loop, queues=1)
    broker.store(TOPIC, 0, b"a", b"b", b"c")
    async with new_consumer() as consumer:
        assert await take(consumer, 2) == [b"a", b"b"]
    assert broker.group.offsets == {("G", TOPIC, 0): 1}
    await cluster.close()


async def test_another_loop_goes_on_behind_one_that_was_left(loop: NetworkedLoop) -> None:
    cluster, broker = await start(loop, queues=1)
    broker.store(TOPIC, 0, b"a", b"b", b"c")
    async with new_consumer() as consumer:
        assert await take(consumer, 1) == [b"a"]
        assert await take(consumer, 2) == [b"b", b"c"]
    assert broker.group.offsets == {("G", TOPIC, 0): 2}
    await cluster.close()


async def test_a_message_is_sent_back_to_the_leader_that_has_it(loop: NetworkedLoop) -> None:
    cluster, broker = await start(loop, queues=1)
    broker.store(TOPIC, 0, b"a", b"b")
    answers = [ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SUCCESS]
    asked: list[Frame] = []

    def take_back(connection: Connection, request: Frame) -> None:
        asked.append(request)
        connection.respond(request, answers.pop(0))

    broker.overrides[RequestCode.CONSUMER_SEND_MSG_BACK] = take_back
    async with new_consumer() as consumer:
        async for message in consumer.messages():
            if message.body == b"b":
                await consumer.send_back(message, delay_level=2)
                break
    assert not answers
    assert [asked[1].ext[name] for name in ("group", "delayLevel", "originTopic")] == [
        "G",
        "2",
        TOPIC,
    ]
    assert asked[1].ext["offset"] == str(message.record.position) != "0"
    await cluster.close()


@pytest.mark.parametrize(
    ("config", "sent"),
    [(ConsumerConfig(), None), (ConsumerConfig(max_reconsume_times=3), "3")],
    ids=["usual", "limited"],
)
async def test_the_groups_limit_of_attempts_holds_unless_the_consumer_has_its_own(
    loop: NetworkedLoop, config: ConsumerConfig, sent: str | None
) -> None:
    cluster, broker = await start(loop, queues=1)
    broker.store(TOPIC, 0, b"a")
    asked: list[Frame] = []

    def take_back(connection: Connection, request: Frame) -> None:
        asked.append(request)
        connection.respond(request, ResponseCode.SUCCESS)

    broker.overrides[RequestCode.CONSUMER_SEND_MSG_BACK] = take_back
    async with new_consumer(config=config) as consumer:
        async for message in consumer.messages():
            await consumer.send_back(message)
            break
    assert [request.ext.get("maxReconsumeTimes") for request in asked] == [sent]
    await cluster.close()


async def test_a_refusal_to_take_a_message_back_is_told(loop: NetworkedLoop) -> None:
    cluster, broker = await start(loop, queues=1)
    broker.store(TOPIC, 0, b"a")
    broker.overrides[RequestCode.CONSUMER_SEND_MSG_BACK] = lambda connection, request: (
        connection.respond(request, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "no group")
    )
    async with new_consumer() as consumer:
        async for message in consumer.messages():
            with pytest.raises(RefusedError, match="no group") as caught:
                await consumer.send_back(message)
            break
    assert not caught.value.retriable
    await cluster.close()


async def test_what_was_sent_back_comes_again_from_its_first_message_on(
    loop: NetworkedLoop,
) -> None:
    cluster, broker = await start(loop, queues=1)
    cluster.topics["%RETRY%G"] = 1
    broker.store("%RETRY%G", 0, b"again", properties=b"RETRY_TOPIC\x01T\x02")
    async with Consumer(NAME_SERVER, "G", {TOPIC: "*"}, retries=True) as consumer:
        async for message in consumer.messages():
            assert (message.body, message.original_topic) == (b"again", TOPIC)
            break
    await cluster.close()


async def test_a_consumer_goes_back_to_a_time(loop: NetworkedLoop) -> None:
    cluster, broker = await start(loop, queues=1)
    broker.store(TOPIC, 0, b"a", b"b", b"c")
    async with new_consumer() as consumer:
        assert await take(consumer, 3) == [b"a", b"b", b"c"]
        await consumer.rewind(NOW_MS + 1)
        assert await take(consumer, 2) == [b"b", b"c"]
    assert broker.group.offsets == {("G", TOPIC, 0): 2}
    await cluster.close()


async def test_a_consumer_goes_back_before_what_it_has_committed(loop: NetworkedLoop) -> None:
    cluster, broker = await start(loop, queues=1)
    broker.store(TOPIC, 0, b"a", b"b", b"c")
    async with new_consumer() as consumer:
        assert await take(consumer, 3) == [b"a", b"b", b"c"]
        assert await consumer.commit()
        assert broker.group.offsets == {("G", TOPIC, 0): 2}
        await consumer.rewind(NOW_MS + 1)
        async with asyncio.timeout(60):
            assert await take(consumer, 2) == [b"b", b"c"]
        await consumer.rewind(NOW_MS)
        assert await consumer.commit()
        assert broker.group.offsets == {("G", TOPIC, 0): 0}
    await cluster.close()


async def test_a_broadcast_is_not_sent_back(loop: NetworkedLoop) -> None:
    with pytest.raises(ValueError, match="cannot be sent back"):
        Consumer(NAME_SERVER, "G", {TOPIC: "*"}, broadcast=True, retries=True)
