"""The consumer against brokers in memory: groups, offsets, filters, and changes of leader."""

from __future__ import annotations

import asyncio

import orjson
import pytest

from broker.client.config import ConsumerConfig
from broker.client.consumer.consumer import Consumer
from broker.client.consumer.fetcher import StartFrom
from broker.client.consumer.message_selector import Sql
from broker.client.errors import ClosedError
from broker.filter.subscription import ExpressionError
from broker.remoting.connection import Connection
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.remoting.protocol.frame import Frame
from tests.broker.client.consumer.consumers import TOPIC, new_consumer, start, take
from tests.broker.client.fake_cluster import NAME_SERVER, NOW_MS
from tests.support.virtual_network import NetworkedLoop


async def gets_nothing(consumer: Consumer, seconds: float = 5.0) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await consumer.next_batch()
    except TimeoutError:
        return True
    return False


async def test_a_new_group_reads_from_the_beginning_when_told_to(loop: NetworkedLoop) -> None:
    cluster, broker = await start(loop)
    broker.store(TOPIC, 0, b"a", b"b")
    broker.store(TOPIC, 1, b"c")
    async with new_consumer() as consumer:
        assert sorted(await take(consumer, 3)) == [b"a", b"b", b"c"]
    await cluster.close()


async def test_a_new_group_reads_from_the_end_by_default(loop: NetworkedLoop) -> None:
    cluster, broker = await start(loop, queues=1)
    broker.store(TOPIC, 0, b"old")
    async with Consumer(NAME_SERVER, "G", {TOPIC: "*"}) as consumer:
        await asyncio.sleep(1)
        broker.store(TOPIC, 0, b"new")
        assert await take(consumer, 1) == [b"new"]
    await cluster.close()


@pytest.mark.parametrize("broadcast", [False, True])
@pytest.mark.parametrize("start_from", ["latest", NOW_MS + 2])
async def test_a_group_commits_where_it_began_although_it_got_nothing(
    loop: NetworkedLoop, start_from: StartFrom, broadcast: bool
) -> None:
    cluster, broker = await start(loop, queues=1)
    broker.store(TOPIC, 0, b"old", b"older")
    async with new_consumer(start_from=start_from, broadcast=broadcast) as consumer:
        assert await gets_nothing(consumer)
    assert broker.group.offsets == ({} if broadcast else {("G", TOPIC, 0): 2})
    broker.store(TOPIC, 0, b"new")
    async with new_consumer(start_from="latest") as consumer:
        if broadcast:  # that kept its offsets to itself
            assert await gets_nothing(consumer)
        else:
            assert await take(consumer, 1) == [b"new"]
    await cluster.close()


async def test_a_new_group_can_start_at_a_time(loop: NetworkedLoop) -> None:
    cluster, broker = await start(loop, queues=1)
    broker.store(TOPIC, 0, b"a", b"b", b"c")
    async with new_consumer(start_from=NOW_MS + 2) as consumer:
        assert await take(consumer, 1) == [b"c"]
    await cluster.close()


async def test_a_held_pull_brings_a_new_message_at_once(loop: NetworkedLoop) -> None:
    cluster, broker = await start(loop, queues=1)
    async with new_consumer() as consumer:
        await asyncio.sleep(3)
        stored_at = loop.time()
        broker.store(TOPIC, 0, b"x")
        assert await take(consumer, 1) == [b"x"]
        assert loop.time() == stored_at
        assert broker.count(RequestCode.PULL_MESSAGE) <= 2
    await cluster.close()


async def test_closing_commits_what_was_acknowledged(loop: NetworkedLoop) -> None:
    cluster, broker = await start(loop, queues=1)
    broker.store(TOPIC, 0, b"a", b"b", b"c")
    async with new_consumer() as consumer:
        batch = await consumer.next_batch()
        consumer.acknowledge(batch.queue, 2)
    assert broker.group.offsets == {("G", TOPIC, 0): 2}
    assert broker.count(RequestCode.UNREGISTER_CLIENT) == 1
    async with new_consumer(number=2) as consumer:
        assert await take(consumer, 1) == [b"c"]
    await cluster.close()


async def test_offsets_are_committed_every_few_seconds(loop: NetworkedLoop) -> None:
    cluster, broker = await start(loop, queues=1)
    broker.store(TOPIC, 0, b"a", b"b")
    async with new_consumer() as consumer:
        await take(consumer, 2)
        await asyncio.sleep(6)
        assert broker.group.offsets == {("G", TOPIC, 0): 2}
        await asyncio.sleep(60)
        assert broker.count(RequestCode.UPDATE_CONSUMER_OFFSET) == 1
    await cluster.close()


async def test_a_failover_neither_repeats_nor_loses_messages(loop: NetworkedLoop) -> None:
    cluster, broker = await start(loop, queues=2)
    bodies: list[bytes] = []
    async with new_consumer(config=ConsumerConfig(pull_messages_max=3)) as consumer:
        leader = broker
        for round_number in range(4):
            expected = [b"%d-%d" % (round_number, number) for number in range(10)]
            leader.store(TOPIC, round_number % 2, *expected)
            bodies += await take(consumer, 10)
            leader = await cluster.fail_over(leader)
        assert bodies == [b"%d-%d" % (n, number) for n in range(4) for number in range(10)]
        assert await gets_nothing(consumer, 60)
    await cluster.close()


async def test_a_pull_that_a_deposed_leader_holds_is_given_up(loop: NetworkedLoop) -> None:
    cluster, broker = await start(loop, queues=1)
    async with new_consumer() as consumer:
        await asyncio.sleep(1)
        broker.leading = False
        leader = await cluster.add(broker.group)
        await asyncio.sleep(31)  # the next look-up of the route
        leader.store(TOPIC, 0, b"x")
        assert not await gets_nothing(consumer, 0.1)
    await cluster.close()


async def test_a_broker_that_lags_behind_does_not_make_messages_come_again(
    loop: NetworkedLoop,
) -> None:
    cluster, broker = await start(loop, queues=1)
    broker.store(TOPIC, 0, b"a", b"b", b"c")
    async with new_consumer() as consumer:
        await take(consumer, 3)
        stored = broker.group.queues[TOPIC, 0]
        broker.group.queues[TOPIC, 0] = stored[:1]
        broker.run_held_pulls()
        assert await gets_nothing(consumer, 5)
        broker.group.queues[TOPIC, 0] = stored
        broker.store(TOPIC, 0, b"d")
        assert await take(consumer, 1) == [b"d"]
    await cluster.close()


async def test_a_topic_that_was_made_anew_is_read_from_its_new_end(loop: NetworkedLoop) -> None:
    cluster, broker = await start(loop, queues=1)
    broker.store(TOPIC, 0, b"a", b"b", b"c")
    async with new_consumer() as consumer:
        await take(consumer, 3)
        await consumer.commit()
        broker.group.queues.clear()
        leader = await cluster.fail_over(broker)
        await asyncio.sleep(15)
        leader.store(TOPIC, 0, b"new")
        assert await take(consumer, 1) == [b"new"]
    assert broker.group.offsets == {("G", TOPIC, 0): 1}
    await cluster.close()


async def test_expired_messages_are_skipped(loop: NetworkedLoop) -> None:
    cluster, broker = await start(loop, queues=1)
    broker.group.offsets["G", TOPIC, 0] = 2
    broker.group.first_offsets[TOPIC, 0] = 10
    broker.store(TOPIC, 0, b"x")
    async with new_consumer() as consumer:
        assert await take(consumer, 1) == [b"x"]
    assert broker.group.offsets == {("G", TOPIC, 0): 11}
    await cluster.close()


async def test_all_groups_of_brokers_are_read(loop: NetworkedLoop) -> None:
    cluster, _ = await start(loop, queues=1, groups=2)
    for broker in cluster.brokers:
        broker.store(TOPIC, 0, broker.group.name.encode())
    async with new_consumer() as consumer:
        assert sorted(await take(consumer, 2)) == [b"broker-a", b"broker-b"]
    await cluster.close()


async def test_tags_are_filtered_and_what_was_left_out_is_committed(loop: NetworkedLoop) -> None:
    cluster, broker = await start(loop, queues=1)
    for body, tags in ((b"1", b"A"), (b"2", b"B"), (b"3", b"C"), (b"4", b"B")):
        broker.store(TOPIC, 0, body, properties=b"TAGS\x01" + tags + b"\x02")
    async with new_consumer(tags="A || C") as consumer:
        assert await take(consumer, 2) == [b"1", b"3"]
        broker.store(TOPIC, 0, b"5", properties=b"TAGS\x01B\x02")
        await asyncio.sleep(1)
    assert broker.group.offsets == {("G", TOPIC, 0): 5}
    await cluster.close()


async def test_the_broker_alone_filters_by_an_sql92_expression(loop: NetworkedLoop) -> None:
    cluster, broker = await start(loop, queues=1)
    for body, size in ((b"1", b"3"), (b"2", b"9"), (b"3", b"4")):
        broker.store(TOPIC, 0, body, properties=b"TAGS\x01A\x02size\x01" + size + b"\x02")
    async with new_consumer(tags=Sql("size < 5 AND TAGS = 'A'")) as consumer:
        assert await take(consumer, 2) == [b"1", b"3"]
    beats = [each for each in broker.requests if each.code == RequestCode.HEART_BEAT]
    (told,) = orjson.loads(beats[0].body)["consumerDataSet"][0]["subscriptionDataSet"]
    assert told["expressionType"] == "SQL92"
    assert told["subString"] == "size < 5 AND TAGS = 'A'"
    await cluster.close()


def test_an_expression_with_a_mistake_makes_no_selector() -> None:
    with pytest.raises(ExpressionError, match="size <"):
        Sql("size <")


async def test_what_was_left_out_does_not_commit_what_is_not_acknowledged(
    loop: NetworkedLoop,
) -> None:
    cluster, broker = await start(loop, queues=1)
    broker.store(TOPIC, 0, b"1", properties=b"TAGS\x01A\x02")
    async with new_consumer(tags="A") as consumer:
        await take(consumer, 1, acknowledge=False)
        broker.store(TOPIC, 0, b"2", properties=b"TAGS\x01B\x02")
        await asyncio.sleep(10)
    assert broker.group.offsets == {}
    await cluster.close()


async def test_broadcast_members_get_everything_and_commit_nothing(loop: NetworkedLoop) -> None:
    cluster, broker = await start(loop, queues=2)
    broker.store(TOPIC, 0, b"a")
    broker.store(TOPIC, 1, b"b")
    async with (
        new_consumer(number=1, broadcast=True) as first,
        new_consumer(number=2, broadcast=True) as second,
    ):
        assert sorted(await take(first, 2)) == [b"a", b"b"]
        assert sorted(await take(second, 2)) == [b"a", b"b"]
    assert broker.count(RequestCode.UPDATE_CONSUMER_OFFSET) == 0
    await cluster.close()


async def test_a_silent_broker_does_not_mean_that_nothing_was_ever_committed(
    loop: NetworkedLoop,
) -> None:
    cluster, broker = await start(loop, queues=1)
    broker.store(TOPIC, 0, b"a", b"b")
    broker.group.offsets["G", TOPIC, 0] = 1

    def refuse(connection: Connection, request: Frame) -> None:
        connection.respond(request, ResponseCode.SYSTEM_ERROR, "not now")

    broker.overrides[RequestCode.QUERY_CONSUMER_OFFSET] = refuse
    async with new_consumer() as consumer:
        assert await gets_nothing(consumer, 2)
        del broker.overrides[RequestCode.QUERY_CONSUMER_OFFSET]
        assert await take(consumer, 1) == [b"b"]
    await cluster.close()


async def test_a_topic_is_waited_for(loop: NetworkedLoop) -> None:
    cluster, broker = await start(loop, queues=1)
    del cluster.topics[TOPIC]
    async with new_consumer() as consumer:
        await asyncio.sleep(5)
        cluster.topics[TOPIC] = 1
        broker.store(TOPIC, 0, b"x")
        assert not await gets_nothing(consumer, 1)
    await cluster.close()


async def test_new_queues_of_a_topic_are_found(loop: NetworkedLoop) -> None:
    cluster, broker = await start(loop, queues=1)
    async with new_consumer() as consumer:
        await asyncio.sleep(1)
        cluster.topics[TOPIC] = 3
        broker.store(TOPIC, 2, b"x")
        assert not await gets_nothing(consumer, 31)
    await cluster.close()


async def test_who_waits_for_a_closed_consumer_is_told(loop: NetworkedLoop) -> None:
    cluster, _ = await start(loop)
    consumer = new_consumer()
    await consumer.start()
    waiting = asyncio.ensure_future(consumer.next_batch())
    await asyncio.sleep(1)
    await consumer.close()
    with pytest.raises(ClosedError):
        await waiting
    assert [batch async for batch in consumer] == []
    await cluster.close()


async def test_closing_is_not_held_up_by_a_broker_that_is_gone(loop: NetworkedLoop) -> None:
    cluster, broker = await start(loop, queues=1)
    broker.store(TOPIC, 0, b"x")
    consumer = new_consumer()
    await consumer.start()
    await take(consumer, 1)
    await broker.kill()
    before = loop.time()
    await consumer.close()
    assert loop.time() - before < 9
    await cluster.close()
