"""The producer against brokers in memory: queues, results, retries, and outcomes in doubt."""

from __future__ import annotations

import asyncio
import zlib
from random import Random

import pytest

from broker.client.config import ProducerConfig
from broker.client.errors import (
    ClosedError,
    IllegalMessageError,
    TopicNotFoundError,
)
from broker.client.message import Message, SendStatus
from broker.client.producer.queue_selection import queue_index
from broker.remoting.protocol.codes import RequestCode
from store.message.properties import decode_properties
from store.message.record import decode_record
from tests.broker.client.producer.producers import TOPIC, queue, start, stop
from tests.support.virtual_network import NetworkedLoop


async def test_a_message_is_stored_with_its_properties(loop: NetworkedLoop) -> None:
    cluster, (broker,), producer = await start(loop)
    message = Message(TOPIC, b"body", tags="A", keys=["k1", "k2"], properties={"p": "v"})
    result = await producer.send(message, queue(2))
    record = decode_record(broker.group.queues[TOPIC, 2][0].record)
    assert record.body == b"body"
    assert decode_properties(record.properties) == {
        "p": "v",
        "TAGS": "A",
        "KEYS": "k1 k2",
        "UNIQ_KEY": result.first_unique_key,
    }
    await stop(cluster, producer)


async def test_the_result_says_where_the_message_is(loop: NetworkedLoop) -> None:
    cluster, (broker,), producer = await start(loop)
    broker.store(TOPIC, 2, b"before")
    result = await producer.send(Message(TOPIC, b"body"), queue(2))
    record = decode_record(broker.group.queues[TOPIC, 2][1].record)
    assert (result.status, result.queue, result.queue_offset) == (SendStatus.OK, queue(2), 1)
    assert result.message_ids == [f"{record.store_host.hex().upper()}{record.position:016X}"]
    assert len(result.first_unique_key) == 32
    await stop(cluster, producer)


async def test_messages_go_round_all_queues(loop: NetworkedLoop) -> None:
    cluster, _, producer = await start(loop, groups=2, queues=3)
    results = [await producer.send(Message(TOPIC, b"x")) for _ in range(12)]
    queues = await producer.queues(TOPIC)
    counts = [sum(result.queue == each for result in results) for each in queues]
    assert counts == [2] * 6
    await stop(cluster, producer)


async def test_a_batch_is_stored_in_order_in_one_queue(loop: NetworkedLoop) -> None:
    cluster, (broker,), producer = await start(loop)
    kind = Message(TOPIC, b"", tags="A", flag=7)
    bodies = [b"%d" % number for number in range(5)]
    result = await producer.send_batch([kind.with_body(body) for body in bodies], queue(1))
    assert broker.group.bodies(TOPIC, 1) == bodies
    assert result.message_count == len(result.message_ids) == 5
    records = [decode_record(stored.record) for stored in broker.group.queues[TOPIC, 1]]
    keys = [decode_properties(record.properties)["UNIQ_KEY"] for record in records]
    assert keys == result.unique_keys
    assert broker.count(RequestCode.SEND_BATCH_MESSAGE) == 1
    await stop(cluster, producer)


async def test_many_sends_in_one_turn_are_under_way_together(loop: NetworkedLoop) -> None:
    cluster, _, producer = await start(loop)
    await producer.send(Message(TOPIC, b"first"))
    futures = [producer.send_nowait(Message(TOPIC, b"x"), queue(0)) for _ in range(100)]
    results = await asyncio.gather(*futures)
    offsets = [result.queue_offset for result in results]
    assert offsets == list(range(offsets[0], offsets[0] + 100))
    await stop(cluster, producer)


async def test_closing_ends_what_is_under_way(loop: NetworkedLoop) -> None:
    cluster, (broker,), producer = await start(loop)
    await producer.send(Message(TOPIC, b"x"))
    broker.mute = True
    waiting = producer.send_nowait(Message(TOPIC, b"x"))
    await broker.kill()
    retrying = producer.send_nowait(Message(TOPIC, b"x"))
    await asyncio.sleep(1)
    await producer.close()
    for future in (waiting, retrying, producer.send_nowait(Message(TOPIC, b"x"))):
        with pytest.raises(ClosedError):
            await future
    await cluster.close()


async def test_what_no_broker_takes_is_not_sent(loop: NetworkedLoop) -> None:
    cluster, (broker,), producer = await start(loop)
    with pytest.raises(IllegalMessageError, match="exceeds"):
        await producer.send(Message(TOPIC, bytes(4 * 1024 * 1024 + 1)))
    with pytest.raises(IllegalMessageError, match="limit"):
        await producer.send_batch([Message(TOPIC, bytes(3 * 1024 * 1024))] * 2)
    with pytest.raises(IllegalMessageError, match="at least one"):
        await producer.send_batch([])
    with pytest.raises(IllegalMessageError, match="delay"):
        await producer.send_batch([Message(TOPIC, b"x", delay_level=1)])
    with pytest.raises(IllegalMessageError, match="one topic, not of T and U"):
        await producer.send_batch([Message(TOPIC, b"x"), Message("U", b"x")])
    assert broker.requests == []
    await stop(cluster, producer)


async def test_a_message_goes_to_a_queue_of_its_own_topic_only(loop: NetworkedLoop) -> None:
    cluster, (broker,), producer = await start(loop)
    cluster.topics["U"] = 4
    message = Message("U", b"x")
    for send in (producer.send, producer.send_one_way, producer.request):
        with pytest.raises(IllegalMessageError, match="of U cannot go to a queue of T"):
            await send(message, queue=queue(1))
    with pytest.raises(IllegalMessageError, match="of U cannot go to a queue of T"):
        await producer.send_batch([message, message], queue(1))
    assert broker.requests == []
    await stop(cluster, producer)


async def test_slow_brokers_are_left_alone_when_that_is_asked_for(loop: NetworkedLoop) -> None:
    config = ProducerConfig(send_latency_fault_enable=True, idempotent=False)
    cluster, (slow, quick), producer = await start(loop, groups=2, queues=1, config=config)
    await producer.queues(TOPIC)
    slow.mute = True
    await producer.send(Message(TOPIC, b"x"))
    await producer.send(Message(TOPIC, b"x"))
    slow.mute = False
    results = [await producer.send(Message(TOPIC, b"x")) for _ in range(4)]
    assert {result.queue.broker for result in results} == {quick.group.name}
    await stop(cluster, producer)


async def test_large_bodies_travel_compressed_and_come_back_whole(loop: NetworkedLoop) -> None:
    cluster, [broker], producer = await start(loop, queues=1)
    bodies = [b"a" * 4096, b"a" * 4097, Random(1).randbytes(5000)]
    for body in bodies:
        await producer.send(Message(TOPIC, body))
    sent = [request for request in broker.requests if request.code == RequestCode.SEND_MESSAGE_V2]
    assert [request.ext["f"] for request in sent] == ["0", "1", "0"]
    assert zlib.decompress(sent[1].body) == bodies[1]
    assert [sent[0].body, sent[2].body] == [bodies[0], bodies[2]]
    await stop(cluster, producer)


async def test_a_one_way_send_waits_for_no_answer(loop: NetworkedLoop) -> None:
    cluster, [broker], producer = await start(loop, queues=1)
    broker.lose_answers = 1
    await producer.send_one_way(Message(TOPIC, b"x"))
    await asyncio.sleep(1)
    assert broker.group.bodies(TOPIC, 0) == [b"x"]
    with pytest.raises(TopicNotFoundError):
        await producer.send_one_way(Message("missing", b"x"))
    await stop(cluster, producer)


async def test_messages_of_one_key_go_to_one_queue(loop: NetworkedLoop) -> None:
    cluster, _, producer = await start(loop, groups=2)
    queues = await producer.queues(TOPIC)
    for key in ("anna", "ben", "carla", "polygenelubricants"):
        used = {(await producer.send_by_key(Message(TOPIC, b"x"), key)).queue for _ in range(3)}
        assert used == {queues[queue_index(key, len(queues))]}
    assert queue_index("anna", 7) == 2998944 % 7
    await stop(cluster, producer)
