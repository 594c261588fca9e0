"""The producer against brokers in memory: queues, results, retries, and outcomes in doubt."""

from __future__ import annotations

import asyncio
import zlib
from random import Random

import pytest

from broker.client.client_identity import ClientIdentity
from broker.client.config import ProducerConfig
from broker.client.errors import (
    ClosedError,
    DeadlineError,
    DoubtfulRefusalError,
    IllegalMessageError,
    NameServersUnreachableError,
    RefusedError,
    TopicNotFoundError,
)
from broker.client.message import Message, MessageQueue, SendStatus
from broker.client.producer.producer import Producer
from broker.client.producer.queue_selection import queue_index
from broker.remoting.protocol.codes import OUTCOME, OUTCOME_UNKNOWN, RequestCode, ResponseCode
from store.message.properties import decode_properties
from store.message.record import decode_record
from tests.broker.client.fake_cluster import NAME_SERVER, NOW_MS, Broker, Cluster
from tests.support.virtual_network import NetworkedLoop

TOPIC = "T"


def new_producer(config: ProducerConfig | None = None) -> Producer:
    return Producer(
        NAME_SERVER,
        config,
        wall_clock=lambda: NOW_MS,
        rng=Random(1),
        identity=ClientIdentity("10.0.0.9", 77, 1),
    )


async def start(
    loop: NetworkedLoop, *, groups: int = 1, queues: int = 4, config: ProducerConfig | None = None
) -> tuple[Cluster, list[Broker], Producer]:
    cluster = Cluster(loop)
    cluster.topics[TOPIC] = queues
    brokers = await cluster.start(groups)
    producer = new_producer(config)
    await producer.start()
    return cluster, brokers, producer


async def stop(cluster: Cluster, producer: Producer) -> None:
    await producer.close()
    await cluster.close()


def queue(queue_id: int, broker: str = "broker-a") -> MessageQueue:
    return MessageQueue(TOPIC, broker, queue_id)


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


async def test_sending_goes_on_with_the_new_leader(loop: NetworkedLoop) -> None:
    cluster, (broker,), producer = await start(loop)
    await producer.send(Message(TOPIC, b"one"), queue(0))
    await cluster.fail_over(broker)
    result = await producer.send(Message(TOPIC, b"two"), queue(0))
    assert result.queue_offset == 1
    assert broker.group.bodies(TOPIC, 0) == [b"one", b"two"]
    await stop(cluster, producer)


async def test_a_new_leader_is_found_soon_after_it_is_known(loop: NetworkedLoop) -> None:
    cluster, (broker,), producer = await start(loop)
    await producer.send(Message(TOPIC, b"one"))
    cluster.leaderless.append("broker-a")
    await broker.kill()
    sending = producer.send_nowait(Message(TOPIC, b"two"))
    await asyncio.sleep(0.4)
    cluster.leaderless.clear()
    await broker.start()
    available_at = loop.time()
    await sending
    assert loop.time() - available_at < 0.1
    await stop(cluster, producer)


async def test_an_outage_costs_few_lookups_however_many_messages_wait(loop: NetworkedLoop) -> None:
    cluster, (broker,), producer = await start(loop)
    await producer.send(Message(TOPIC, b"one"))
    cluster.leaderless.append("broker-a")
    await broker.kill()
    cluster.lookups.clear()
    sending = [producer.send_nowait(Message(TOPIC, b"x")) for _ in range(200)]
    await asyncio.sleep(10)
    assert len(cluster.lookups) < 60
    cluster.leaderless.clear()
    await broker.start()
    await asyncio.gather(*sending)
    await stop(cluster, producer)


async def test_a_message_whose_answer_was_lost_is_not_stored_twice(loop: NetworkedLoop) -> None:
    cluster, (broker,), producer = await start(loop)
    broker.lose_answers = 1
    result = await producer.send(Message(TOPIC, b"once"), queue(3))
    assert broker.group.bodies(TOPIC, 3) == [b"once"]
    record = decode_record(broker.group.queues[TOPIC, 3][0].record)
    assert (result.queue, result.queue_offset) == (queue(3), 0)
    assert result.message_ids == [f"{record.store_host.hex().upper()}{record.position:016X}"]
    await stop(cluster, producer)


async def test_a_batch_whose_answer_was_lost_is_found_with_all_its_ids(loop: NetworkedLoop) -> None:
    cluster, (broker,), producer = await start(loop)
    broker.lose_answers = 1
    messages = [Message(TOPIC, b"x" * size, tags="T") for size in (5, 0, 17)]
    result = await producer.send_batch(messages, queue(0))
    records = [decode_record(stored.record) for stored in broker.group.queues[TOPIC, 0]]
    assert [len(record.body) for record in records] == [5, 0, 17]
    assert result.message_ids == [
        f"{record.store_host.hex().upper()}{record.position:016X}" for record in records
    ]
    await stop(cluster, producer)


async def test_a_message_that_was_lost_with_its_leader_is_sent_again(loop: NetworkedLoop) -> None:
    cluster, (broker,), producer = await start(loop)
    await producer.send(Message(TOPIC, b"one"), queue(0))
    broker.mute = True
    sending = producer.send_nowait(Message(TOPIC, b"two"), queue(0))
    await asyncio.sleep(0.1)
    await cluster.fail_over(broker)
    await sending
    assert broker.group.bodies(TOPIC, 0) == [b"one", b"two"]
    await stop(cluster, producer)


async def test_a_message_that_a_slow_leader_stores_late_is_not_sent_again(
    loop: NetworkedLoop,
) -> None:
    cluster, (broker,), producer = await start(loop)
    await producer.send(Message(TOPIC, b"one"), queue(0))
    broker.stalled = []
    sending = producer.send_nowait(Message(TOPIC, b"two"), queue(0))
    await asyncio.sleep(10)
    broker.go_on()
    result = await sending
    assert result.queue_offset == 1
    assert broker.group.bodies(TOPIC, 0) == [b"one", b"two"]
    await stop(cluster, producer)


async def test_a_leader_that_does_not_answer_is_given_up(loop: NetworkedLoop) -> None:
    cluster, (broker,), producer = await start(loop)
    await producer.send(Message(TOPIC, b"one"), queue(0))
    broker.mute = True
    sending = producer.send_nowait(Message(TOPIC, b"two"), queue(0))
    await asyncio.sleep(0.5)
    broker.leading = False
    await cluster.add(broker.group)
    before = loop.time()
    await sending
    assert loop.time() - before < 3.0
    await stop(cluster, producer)


async def test_a_node_that_does_not_lead_is_not_the_last_word(loop: NetworkedLoop) -> None:
    cluster, (broker,), producer = await start(loop)
    broker.refusals += [(ResponseCode.SERVICE_NOT_AVAILABLE, "not the leader")] * 5
    result = await producer.send(Message(TOPIC, b"x"))
    assert result.status is SendStatus.OK
    await stop(cluster, producer)


async def test_another_group_takes_over_what_one_cannot_take(loop: NetworkedLoop) -> None:
    cluster, (first, second), producer = await start(loop, groups=2, queues=1)
    await producer.queues(TOPIC)
    await first.kill()
    results = [await producer.send(Message(TOPIC, b"x")) for _ in range(4)]
    assert {result.queue.broker for result in results} == {second.group.name}
    await stop(cluster, producer)


async def test_what_one_group_may_have_stored_is_not_sent_to_another(loop: NetworkedLoop) -> None:
    cluster, brokers, producer = await start(loop, groups=2, queues=1)
    await producer.queues(TOPIC)
    for broker in brokers:
        broker.mute = True
    sent = asyncio.ensure_future(producer.send(Message(TOPIC, b"x")))
    await asyncio.sleep(10)
    asked = [broker.count(RequestCode.SEND_MESSAGE_V2) > 0 for broker in brokers]
    assert sorted(asked) == [False, True]
    for broker in brokers:
        broker.mute = False
    result = await sent
    assert [broker.group.name == result.queue.broker for broker in brokers] == asked
    await stop(cluster, producer)


async def test_a_refusal_that_leaves_the_outcome_open_keeps_to_its_group(
    loop: NetworkedLoop,
) -> None:
    cluster, brokers, producer = await start(loop, groups=2, queues=1)
    unknown = {OUTCOME: OUTCOME_UNKNOWN}
    for broker in brokers:
        broker.refusals.append((ResponseCode.SERVICE_NOT_AVAILABLE, "deposed"))
        broker.refusal_ext = unknown
    await producer.send(Message(TOPIC, b"x"))
    asked = sorted(broker.count(RequestCode.SEND_MESSAGE_V2) for broker in brokers)
    assert asked == [0, 2]
    await stop(cluster, producer)


async def test_a_refusal_for_good_is_raised_at_once(loop: NetworkedLoop) -> None:
    cluster, (broker,), producer = await start(loop)
    broker.refusals.append((ResponseCode.MESSAGE_ILLEGAL, "too big"))
    with pytest.raises(
        RefusedError, match=r"broker-a refused: too big \(illegal message\)"
    ) as caught:
        await producer.send(Message(TOPIC, b"x"))
    assert not caught.value.retriable
    assert broker.count(RequestCode.SEND_MESSAGE_V2) == 1
    await stop(cluster, producer)


async def test_a_doubtful_refusal_is_tried_three_times(loop: NetworkedLoop) -> None:
    cluster, (broker,), producer = await start(loop)
    broker.refusals += [(ResponseCode.SYSTEM_ERROR, "who knows")] * 5
    with pytest.raises(DoubtfulRefusalError):
        await producer.send(Message(TOPIC, b"x"))
    assert broker.count(RequestCode.SEND_MESSAGE_V2) == 3
    await stop(cluster, producer)


async def test_the_deadline_ends_all_tries(loop: NetworkedLoop) -> None:
    cluster, (broker,), producer = await start(loop, config=ProducerConfig(deadline_seconds=5.0))
    await producer.send(Message(TOPIC, b"x"))
    await broker.kill()
    began = loop.time()
    with pytest.raises(DeadlineError) as caught:
        await producer.send(Message(TOPIC, b"x"))
    assert loop.time() - began == pytest.approx(5.0)
    assert caught.value.retriable
    await stop(cluster, producer)


async def test_a_topic_that_nobody_knows_is_said_to_be_missing(loop: NetworkedLoop) -> None:
    cluster, _, producer = await start(loop)
    began = loop.time()
    with pytest.raises(TopicNotFoundError, match="dledger topic create other"):
        await producer.send(Message("other", b"x"))
    assert loop.time() - began < 4.0
    await stop(cluster, producer)


async def test_a_topic_is_created_by_sending_to_it(loop: NetworkedLoop) -> None:
    cluster, (broker,), producer = await start(loop)
    cluster.topics["TBW102"] = 8
    result = await producer.send(Message("fresh", b"x"))
    assert result.queue.queue_id < 4
    request = next(each for each in broker.requests if each.code == RequestCode.SEND_MESSAGE_V2)
    assert (request.ext["c"], request.ext["d"]) == ("TBW102", "4")
    await stop(cluster, producer)


async def test_without_any_name_server_the_deadline_says_so(loop: NetworkedLoop) -> None:
    cluster, _, producer = await start(loop, config=ProducerConfig(deadline_seconds=2.0))
    await cluster.stop_name_server()
    with pytest.raises(DeadlineError) as caught:
        await producer.send(Message(TOPIC, b"x"))
    assert isinstance(caught.value.last, NameServersUnreachableError)
    await stop(cluster, producer)


async def test_known_leaders_are_used_while_no_name_server_answers(loop: NetworkedLoop) -> None:
    cluster, _, producer = await start(loop)
    await producer.send(Message(TOPIC, b"x"))
    await cluster.stop_name_server()
    await producer.send(Message(TOPIC, b"x"))
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
