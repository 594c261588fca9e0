"""How much a consumer pulls, and how often."""

from __future__ import annotations

import asyncio

from broker.client.config import ConsumerConfig
from broker.client.consumer.group_membership import Share
from broker.client.errors import ClosedError
from broker.remoting.connection import Connection
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.remoting.protocol.ext_fields import ext_int
from broker.remoting.protocol.frame import Frame
from tests.broker.client.consumer.consumers import TOPIC, new_consumer, start, take
from tests.support.virtual_network import NetworkedLoop


async def test_pulling_pauses_when_nobody_takes_what_came(loop: NetworkedLoop) -> None:
    cluster, broker = await start(loop, queues=1)
    broker.store(TOPIC, 0, *(b"%d" % number for number in range(100)))
    async with new_consumer(config=ConsumerConfig(pull_messages_max=10)) as consumer:
        await asyncio.sleep(5)
        assert broker.count(RequestCode.PULL_MESSAGE) == 2
        assert await take(consumer, 100) == [b"%d" % number for number in range(100)]
    await cluster.close()


async def test_pulling_pauses_at_the_bound_of_all_queues_together(loop: NetworkedLoop) -> None:
    cluster, broker = await start(loop, queues=8)
    for number in range(8):
        broker.store(TOPIC, number, *[bytes(1000)] * 4)
    config = ConsumerConfig(pull_messages_max=1, buffered_bytes_max=1)
    async with new_consumer(config=config) as consumer:
        await asyncio.sleep(5)
        assert broker.count(RequestCode.PULL_MESSAGE) <= 8
        assert len(await take(consumer, 32)) == 32
    await cluster.close()


async def test_an_answer_that_comes_too_soon_does_not_make_the_client_spin(
    loop: NetworkedLoop,
) -> None:
    def nothing(connection: Connection, request: Frame) -> None:
        ext = {"nextBeginOffset": "0", "minOffset": "0", "maxOffset": "0"}
        connection.respond(request, ResponseCode.PULL_NOT_FOUND, ext=ext)

    cluster, broker = await start(loop, queues=1)
    broker.overrides[RequestCode.PULL_MESSAGE] = nothing
    async with new_consumer():
        await asyncio.sleep(9.95)
        assert broker.count(RequestCode.PULL_MESSAGE) <= 100
    await cluster.close()


async def test_nonsense_for_records_is_asked_for_again(loop: NetworkedLoop) -> None:
    cluster, broker = await start(loop, queues=1)
    broker.store(TOPIC, 0, b"x")

    def garble(connection: Connection, request: Frame) -> None:
        del broker.overrides[RequestCode.PULL_MESSAGE]
        connection.respond(request, ext={"nextBeginOffset": "1"}, body=(b"?" * 200,))

    broker.overrides[RequestCode.PULL_MESSAGE] = garble
    async with new_consumer() as consumer:
        assert await take(consumer, 1) == [b"x"]
    await cluster.close()


async def test_the_answer_of_an_old_leader_sends_the_consumer_to_the_new_one(
    loop: NetworkedLoop,
) -> None:
    """The old leader stops, and waits until its clients have closed their connections."""
    cluster, old = await start(loop, queues=2)
    async with new_consumer() as consumer:
        await asyncio.sleep(5)
        assert len(old.held) == 2
        old.leading = False
        new = await cluster.add(old.group)
        await asyncio.sleep(5)
        assert len(old.held) == 2  # nothing has told the consumer
        for connection, request in old.held:
            ext = {"nextBeginOffset": "0", "minOffset": "0", "maxOffset": "0"}
            ext["leader"] = new.address
            connection.respond(request, ResponseCode.PULL_NOT_FOUND, ext=ext)
        await asyncio.sleep(0.5)
        assert len(new.held) == 2
        await asyncio.sleep(1)
        assert old.server.connections == []
        new.store(TOPIC, 0, b"x")
        assert await take(consumer, 1) == [b"x"]
    await cluster.close()


async def test_a_broker_that_leads_no_more_is_read_at_full_speed_while_no_name_server_answers(
    loop: NetworkedLoop,
) -> None:
    cluster, old = await start(loop, queues=1)
    old.store(TOPIC, 0, *(b"%d" % number for number in range(50)))
    (stored,) = old.group.queues.values()

    def follows(connection: Connection, request: Frame) -> None:
        offset = ext_int(request, "queueOffset")
        if offset < len(stored):
            ext = {"nextBeginOffset": str(offset + 1), "leader": "10.0.0.1:1"}
            connection.respond(request, ext=ext, body=(stored[offset].record,))

    old.overrides[RequestCode.PULL_MESSAGE] = follows
    async with new_consumer(config=ConsumerConfig(pull_messages_max=1)) as consumer:
        assert await take(consumer, 1) == [b"0"]
        await cluster.stop_name_server()
        began = loop.time()
        assert len(await take(consumer, 49)) == 49
        assert loop.time() - began < 1
    await cluster.close()


async def test_a_queue_that_goes_makes_room_for_the_others(loop: NetworkedLoop) -> None:
    cluster, broker = await start(loop, queues=2)
    config = ConsumerConfig(buffered_bytes_max=1)
    async with new_consumer(config=config) as consumer:
        await asyncio.sleep(1)
        for queue_id, body in enumerate((b"a", b"b")):
            broker.store(TOPIC, queue_id, body)
            await asyncio.sleep(1)
        assert await take(consumer, 1) == [b"a"]
        stays = consumer.queues[0]
        await consumer._assign(Share(TOPIC, [stays], has_others=True))
        broker.store(TOPIC, 0, b"c")
        async with asyncio.timeout(5):
            assert await take(consumer, 1) == [b"c"]
    await cluster.close()


async def test_several_tasks_take_batches_of_one_consumer(loop: NetworkedLoop) -> None:
    cluster, broker = await start(loop, queues=1)
    consumer = new_consumer()
    await consumer.start()
    tasks = [asyncio.ensure_future(consumer.next_batch()) for _ in range(4)]
    await asyncio.sleep(1)
    tasks.pop().cancel()
    for count, body in enumerate((b"a", b"b"), 1):
        broker.store(TOPIC, 0, body)
        await asyncio.sleep(1)
        assert sum(task.done() for task in tasks) == count
    await consumer.close()
    await asyncio.sleep(1)
    *_, last = (task.exception() for task in tasks)
    assert isinstance(last, ClosedError)
    await cluster.close()
