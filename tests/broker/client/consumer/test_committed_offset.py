"""The committed offset of a group: it never goes back, and passes what is not for the group."""

from __future__ import annotations

import asyncio

from broker.client.config import ConsumerConfig
from broker.client.consumer.group_membership import Share
from broker.remoting.connection import Connection
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.remoting.protocol.frame import Frame
from tests.broker.client.consumer.consumers import TOPIC, new_consumer, start, take
from tests.broker.client.consumer.test_consumer import gets_nothing
from tests.broker.client.consumer.test_consumer_members import queue
from tests.support.virtual_network import NetworkedLoop

OTHER_TAG = b"TAGS\x01B\x02"


async def test_a_late_acknowledgment_does_not_undo_what_the_next_owner_committed(
    loop: NetworkedLoop,
) -> None:
    """A member gives a queue up, ends the message in hand, and gets the queue back later."""
    cluster, broker = await start(loop, queues=2)
    async with new_consumer(number=1) as first:
        for queue_id in range(2):
            broker.store(TOPIC, queue_id, *[b"x"] * 10)
        for _ in range(2):
            batch = await first.next_batch()
            first.acknowledge(batch.queue, 3)
        async with new_consumer(number=2) as second:
            await asyncio.sleep(5)
            (theirs,) = second.queues
            first.acknowledge(theirs, 4)
            assert len(await take(second, 7)) == 7
        place = "G", TOPIC, theirs.queue_id
        assert broker.group.offsets[place] == 10
        await asyncio.sleep(20)
        assert len(first.queues) == 2
        assert broker.group.offsets[place] == 10
    assert broker.group.offsets[place] == 10
    await cluster.close()


async def test_nor_does_a_commit_that_failed_when_the_queue_was_given_up(
    loop: NetworkedLoop,
) -> None:
    cluster, broker = await start(loop, queues=1)
    broker.store(TOPIC, 0, *[b"x"] * 10)

    def refuse(connection: Connection, request: Frame) -> None:
        connection.respond(request, ResponseCode.SERVICE_NOT_AVAILABLE, "not the leader")

    async with new_consumer() as consumer:
        await take(consumer, 10)
        broker.overrides[RequestCode.UPDATE_CONSUMER_OFFSET] = refuse
        await consumer._assign(Share(TOPIC, [], has_others=True))
        broker.overrides.clear()
        broker.store(TOPIC, 0, b"y", b"y")
        broker.group.offsets["G", TOPIC, 0] = 12  # another member has it
        await consumer._assign(Share(TOPIC, [queue(0)], has_others=True))
        assert await gets_nothing(consumer, 20)
    assert broker.group.offsets == {("G", TOPIC, 0): 12}
    await cluster.close()


async def test_a_queue_is_not_committed_before_it_is_begun(loop: NetworkedLoop) -> None:
    """Neither in time nor when it is given up before; nor does it begin at what was."""
    cluster, broker = await start(loop, queues=1)
    broker.store(TOPIC, 0, *[b"x"] * 10)
    config = ConsumerConfig(handover_seconds=10)
    async with new_consumer(config=config) as consumer:
        batch = await consumer.next_batch()
        await consumer._assign(Share(TOPIC, [], has_others=True))
        consumer.acknowledge(batch.queue, 4)
        broker.group.offsets["G", TOPIC, 0] = 8  # another member has it
        await consumer._assign(Share(TOPIC, [queue(0)], has_others=True))
        await asyncio.sleep(6)
        assert broker.group.offsets == {("G", TOPIC, 0): 8}
        await consumer._assign(Share(TOPIC, [], has_others=True))
        assert broker.group.offsets == {("G", TOPIC, 0): 8}
        await consumer._assign(Share(TOPIC, [queue(0)], has_others=True))
        assert len(await take(consumer, 2)) == 2
    assert broker.group.offsets == {("G", TOPIC, 0): 10}
    await cluster.close()


async def test_what_was_left_out_is_committed_after_a_reset_too(loop: NetworkedLoop) -> None:
    cluster, broker = await start(loop, queues=1)
    broker.store(TOPIC, 0, b"1", b"2", b"3", properties=OTHER_TAG)
    async with new_consumer(tags="A") as consumer:
        await asyncio.sleep(6)
        assert broker.group.offsets == {("G", TOPIC, 0): 3}
        broker.reset_group("G", TOPIC, 0, 1)
        await asyncio.sleep(6)
        assert broker.group.offsets == {("G", TOPIC, 0): 3}
        assert len(consumer.queues) == 1
    await cluster.close()


async def test_and_after_messages_that_expired(loop: NetworkedLoop) -> None:
    cluster, broker = await start(loop, queues=1)
    broker.group.offsets["G", TOPIC, 0] = 1
    broker.group.first_offsets[TOPIC, 0] = 5
    async with new_consumer(tags="A"):
        await asyncio.sleep(6)
        assert broker.group.offsets == {("G", TOPIC, 0): 5}
        broker.store(TOPIC, 0, b"1", b"2", properties=OTHER_TAG)
        await asyncio.sleep(6)
        assert broker.group.offsets == {("G", TOPIC, 0): 7}
    await cluster.close()
