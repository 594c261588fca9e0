"""A consumer whose group an operator moves."""

from __future__ import annotations

import asyncio

import pytest

from broker.client.config import ConsumerConfig
from broker.client.consumer.offset_reset_body import reset_offsets
from broker.remoting.protocol.codes import ResponseCode
from broker.remoting.protocol.errors import FieldError
from tests.broker.client.consumer.consumers import TOPIC, new_consumer, start, take
from tests.broker.client.consumer.test_consumer import gets_nothing
from tests.broker.client.consumer.test_consumer_members import queue
from tests.broker.client.fake_cluster import NOW_MS, Broker
from tests.support.virtual_network import NetworkedLoop


async def test_messages_come_again_after_the_group_was_moved_back(loop: NetworkedLoop) -> None:
    cluster, broker = await start(loop, queues=1)
    broker.store(TOPIC, 0, b"a", b"b", b"c")
    async with new_consumer() as consumer:
        await take(consumer, 3)
        broker.reset_group("G", TOPIC, 0, 1)
        assert await take(consumer, 2) == [b"b", b"c"]
    assert broker.group.offsets["G", TOPIC, 0] == 3
    await cluster.close()


async def test_messages_are_skipped_after_the_group_was_moved_on(loop: NetworkedLoop) -> None:
    cluster, broker = await start(loop, queues=1)
    async with new_consumer() as consumer:
        await gets_nothing(consumer, 1.0)
        broker.store(TOPIC, 0, b"a", b"b")
        broker.reset_group("G", TOPIC, 0, 2)
        await asyncio.sleep(1)
        broker.store(TOPIC, 0, b"c")
        assert await take(consumer, 1) == [b"c"]
    await cluster.close()


async def test_what_came_before_the_reset_can_no_longer_be_acknowledged(
    loop: NetworkedLoop,
) -> None:
    cluster, broker = await start(loop, queues=1)
    broker.store(TOPIC, 0, b"a", b"b", b"c")
    async with new_consumer() as consumer:
        batch = await consumer.next_batch()
        broker.reset_group("G", TOPIC, 0, 0)
        await asyncio.sleep(1)
        consumer.acknowledge(batch.queue, batch.next_offset)
    assert broker.group.offsets["G", TOPIC, 0] == 0
    await cluster.close()


async def test_a_reset_counts_for_a_queue_that_comes_back_from_another_member(
    loop: NetworkedLoop,
) -> None:
    cluster, broker = await start(loop, queues=2)
    async with new_consumer(number=1) as first:
        for queue_id in range(2):
            broker.store(TOPIC, queue_id, b"a", b"b")
        await take(first, 4)
        async with new_consumer(number=2) as second:
            await asyncio.sleep(5)
            (theirs,) = second.queues
            broker.reset_group("G", TOPIC, theirs.queue_id, 0)
            # The other member goes before it acknowledges anything.
        await asyncio.sleep(5)
        assert len(first.queues) == 2
        async with asyncio.timeout(60):
            assert await take(first, 2) == [b"a", b"b"]
    await cluster.close()


async def test_who_does_not_own_a_queue_commits_no_offset_of_its_reset(
    loop: NetworkedLoop,
) -> None:
    """It would be that of the operator, and the owner may have gone on since."""
    cluster, broker = await start(loop, queues=2)
    async with new_consumer(number=1) as first:
        for queue_id in range(2):
            broker.store(TOPIC, queue_id, b"a", b"b")
        await take(first, 4)
        async with new_consumer(number=2) as second:
            await asyncio.sleep(5)
            (theirs,) = second.queues
            broker.reset_group("G", TOPIC, theirs.queue_id, 1)
            assert await take(second, 1) == [b"b"]
        assert broker.group.offsets["G", TOPIC, theirs.queue_id] == 2
        await asyncio.sleep(20)
        assert len(first.queues) == 2
        assert broker.group.offsets["G", TOPIC, theirs.queue_id] == 2
        await gets_nothing(first, 1.0)
    await cluster.close()


async def test_batches_from_before_a_reset_are_handed_out_no_more(loop: NetworkedLoop) -> None:
    """Nor while the fetcher of the queue still ends."""
    cluster, broker = await start(loop, queues=1)
    broker.store(TOPIC, 0, b"a", b"b")
    async with new_consumer(config=ConsumerConfig(pull_messages_max=1)) as consumer:
        batch = await consumer.next_batch()
        await asyncio.sleep(1)  # the next one is here
        consumer.begin_again({batch.queue: 0})
        await asyncio.sleep(0)
        async with asyncio.timeout(60):
            assert await take(consumer, 2) == [b"a", b"b"]
    await cluster.close()


async def test_of_two_resets_at_once_the_last_one_counts(loop: NetworkedLoop) -> None:
    cluster, broker = await start(loop, queues=1)
    broker.store(TOPIC, 0, b"a", b"b", b"c", b"d")
    async with new_consumer() as consumer:
        await take(consumer, 4)
        broker.reset_group("G", TOPIC, 0, 3)
        broker.reset_group("G", TOPIC, 0, 1)
        async with asyncio.timeout(60):
            assert await take(consumer, 3) == [b"b", b"c", b"d"]
    await cluster.close()


def moved(broker: Broker, following: int) -> None:
    """The leader answers the held pulls with 21: request 220 did not reach the member."""
    held, broker.held = broker.held, []
    for connection, request in held:
        end = len(broker.group.queues[TOPIC, 0])
        ext = {"nextBeginOffset": str(following), "minOffset": "0", "maxOffset": str(end)}
        connection.respond(request, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET", ext=ext)


async def test_the_next_pull_moves_a_group_back(loop: NetworkedLoop) -> None:
    """The leader says so once, to this pull alone."""
    cluster, broker = await start(loop, queues=1)
    broker.store(TOPIC, 0, b"a", b"b", b"c")
    async with new_consumer() as consumer:
        await take(consumer, 3)
        await asyncio.sleep(6)
        broker.group.offsets["G", TOPIC, 0] = 1
        moved(broker, 1)
        async with asyncio.timeout(60):
            assert await take(consumer, 2, acknowledge=False) == [b"b", b"c"]
        await asyncio.sleep(6)
        assert broker.group.offsets["G", TOPIC, 0] == 1
        consumer.acknowledge(queue(0), 3)
    assert broker.group.offsets["G", TOPIC, 0] == 3
    await cluster.close()


async def test_the_next_pull_moves_a_group_on(loop: NetworkedLoop) -> None:
    """And what came before does not undo that: it is handed out no more."""
    cluster, broker = await start(loop, queues=1)
    async with new_consumer() as consumer:
        await asyncio.sleep(1)
        broker.store(TOPIC, 0, b"a")
        await asyncio.sleep(1)  # it is here, and not taken
        broker.group.append(TOPIC, 0, [(b"b", b""), (b"c", b"")])
        broker.group.offsets["G", TOPIC, 0] = 2
        moved(broker, 2)
        await asyncio.sleep(1)
        async with asyncio.timeout(60):
            assert await take(consumer, 1) == [b"c"]
    assert broker.group.offsets["G", TOPIC, 0] == 3
    await cluster.close()


@pytest.mark.parametrize("turns", range(12))
async def test_a_rewind_that_is_cancelled_leaves_the_queue_pulled(
    loop: NetworkedLoop, turns: int
) -> None:
    cluster, broker = await start(loop, queues=1)
    broker.store(TOPIC, 0, b"a")
    async with new_consumer() as consumer:
        await take(consumer, 1)
        rewinding = asyncio.ensure_future(consumer.rewind(NOW_MS + 1))
        for _ in range(turns):
            await asyncio.sleep(0)
        rewinding.cancel()
        broker.store(TOPIC, 0, b"b")
        async with asyncio.timeout(60):
            assert await take(consumer, 1) == [b"b"]
    await cluster.close()


async def test_the_reset_of_another_group_or_queue_changes_nothing(loop: NetworkedLoop) -> None:
    cluster, broker = await start(loop, queues=1)
    broker.store(TOPIC, 0, b"a")
    async with new_consumer() as consumer:
        await take(consumer, 1)
        broker.reset_group("other", TOPIC, 0, 0)
        broker.reset_group("G", TOPIC, 7, 0)
        assert await gets_nothing(consumer)
    await cluster.close()


def test_both_forms_of_the_table_are_read() -> None:
    named = b'{"brokerName":"broker-a","queueId":0,"topic":"T"}'
    assert reset_offsets(b'{"offsetTable":{%b:5}}' % named) == {queue(0): 5}
    listed = named[:-1] + b',"offset":5}'
    assert reset_offsets(b'{"offsetTable":[%b]}' % listed) == {queue(0): 5}


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"offsetTable":[{}]}', b'{"offsetTable":{"a":1}}']
)
def test_a_table_that_makes_no_sense_is_refused(body: bytes) -> None:
    with pytest.raises(FieldError, match="no table of offsets"):
        reset_offsets(body)
