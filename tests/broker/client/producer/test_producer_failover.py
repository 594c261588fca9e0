"""A message outlasts its leader: it is sent again, elsewhere, or its send fails."""

from __future__ import annotations

import asyncio

import pytest

from broker.client.config import ProducerConfig
from broker.client.errors import (
    DeadlineError,
    DoubtfulRefusalError,
    NameServersUnreachableError,
    RefusedError,
    TopicNotFoundError,
    outcome_unknown,
)
from broker.client.message import Message, SendStatus
from broker.remoting.connection import Connection
from broker.remoting.protocol.codes import OUTCOME, OUTCOME_UNKNOWN, RequestCode, ResponseCode
from broker.remoting.protocol.frame import Frame
from store.message.properties import UNIQUE_KEY, find_property
from store.message.record import decode_record
from tests.broker.client.producer.producers import TOPIC, queue, start, stop
from tests.support.virtual_network import NetworkedLoop


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


async def test_who_may_send_and_not_read_sends_again_after_a_lost_answer(
    loop: NetworkedLoop,
) -> None:
    """It cannot look whether the message is stored; dledger's leaders find the retry."""
    cluster, (broker,), producer = await start(loop)

    def deny(connection: Connection, request: Frame) -> None:
        connection.respond(request, ResponseCode.SYSTEM_ERROR, "AclException: no permission SUB")

    for code in (RequestCode.QUERY_MESSAGE, RequestCode.QUERY_CONSUMER_OFFSET):
        broker.overrides[code] = deny
    broker.lose_answers = 1
    result = await producer.send(Message(TOPIC, b"once"), queue(3))
    assert result.queue == queue(3)
    first, second = (each.record for each in broker.group.queues[TOPIC, 3])
    keys = [find_property(decode_record(each).properties, UNIQUE_KEY) for each in (first, second)]
    assert keys[0] == keys[1]
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
    assert not caught.value.perhaps_stored
    assert broker.count(RequestCode.SEND_MESSAGE_V2) == 1
    await stop(cluster, producer)


async def test_a_refusal_after_a_try_of_unknown_outcome_leaves_it_open(loop: NetworkedLoop) -> None:
    cluster, (broker,), producer = await start(loop)
    answers: list[tuple[int, str, dict[str, str]]] = [
        (ResponseCode.SERVICE_NOT_AVAILABLE, "deposed", {OUTCOME: OUTCOME_UNKNOWN}),
        (ResponseCode.MESSAGE_ILLEGAL, "too big", {}),
    ]

    def refuse(connection: Connection, request: Frame) -> None:
        connection.respond(request, *answers.pop(0))

    broker.overrides[RequestCode.SEND_MESSAGE_V2] = refuse
    with pytest.raises(RefusedError, match="too big") as caught:
        await producer.send(Message(TOPIC, b"x"))
    assert caught.value.perhaps_stored
    assert outcome_unknown(caught.value)
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
