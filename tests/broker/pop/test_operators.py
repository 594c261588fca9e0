"""POP beside 4.x members, resets, deletions and retention."""

from __future__ import annotations

import asyncio

import orjson
import pytest

from broker.errors import UnknownGroupError, UnknownQueueError, UnknownTopicError
from broker.remoting.protocol.codes import RequestCode
from broker.state.commands import Command, CommitOffset, DeleteGroup, DeleteTopic, Expire
from tests.broker.pop.pop_client import (
    EXPIRED,
    INVALID,
    OK,
    Member,
    committed,
    sent,
)
from tests.broker.single_broker import SingleBroker


async def test_a_commit_of_a_4x_member_acknowledges_and_never_goes_back(
    broker: SingleBroker,
) -> None:
    await sent(broker, 6)
    await committed(broker, CommitOffset("g", "orders", 0, 1))
    member = Member(broker)
    one, two, three = await member.receive(3)
    assert one.offset == 1
    await committed(broker, CommitOffset("g", "orders", 0, 3))
    assert await member.ack(one, two, three) == [EXPIRED, EXPIRED, OK]
    assert member.offset == 4
    await committed(broker, CommitOffset("g", "orders", 0, 2))
    assert member.offset == 4
    await committed(broker, CommitOffset("g", "orders", 0, 5))
    assert await member.bodies() == [b"5"]


@pytest.mark.parametrize(
    ("deletes", "refusal"),
    [(DeleteTopic("orders", 1), UnknownTopicError), (DeleteGroup("g", True, 1), UnknownGroupError)],
    ids=["topic", "group"],
)
async def test_what_is_deleted_during_a_read_leaves_nothing(
    broker: SingleBroker, deletes: Command, refusal: type[Exception]
) -> None:
    await sent(broker, 1)
    member = Member(broker)
    assert await member.receive()
    context = broker.broker.context
    pending = context.batcher.pop_queue(("g", "orders", 0))
    assert pending is not None
    async with pending.lock:  # as during a read
        reading = asyncio.ensure_future(member.receive())
        await asyncio.sleep(0.1)
        await committed(broker, deletes)
    await asyncio.wait([reading])
    assert context.machine.state.pop.queues == {}
    assert context.batcher.pop_queue(("g", "orders", 0)) is None
    assert isinstance(reading.exception(), refusal)


@pytest.mark.parametrize("is_online", [True, False])
async def test_a_reset_moves_the_group_back_and_ends_its_handles(
    broker: SingleBroker, is_online: bool
) -> None:
    await sent(broker, 3)
    member = Member(broker)
    zero, one, two = await member.receive()
    await member.ack(zero, one)
    if is_online:
        group = {"groupName": "g", "subscriptionDataSet": []}
        body = orjson.dumps({"clientID": "one", "consumerDataSet": [group]})
        assert (await broker.ask(RequestCode.HEART_BEAT, {}, body)).code == 0
        ext = {"topic": "orders", "group": "g", "timestamp": "0", "isForce": "true"}
        answer = await broker.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext)
    else:
        place = {"topic": "orders", "consumerGroup": "g", "queueId": "0"}
        answer = await broker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, place | {"commitOffset": "0"})
    assert answer.code == 0, answer.remark
    assert member.offset == 0
    assert await member.ack(two) == [INVALID]
    again = await member.receive()
    assert [(each.offset, each.delivery_attempt) for each in again] == [(0, 1), (1, 1), (2, 1)]


async def test_expired_messages_are_over(broker: SingleBroker) -> None:
    await sent(broker, 3)
    member = Member(broker)
    zero, *_ = await member.receive(2)
    context = broker.broker.context
    (end,) = [context.machine.applied_end]
    await sent(broker, 1)
    await committed(broker, Expire(end))
    assert await member.ack(zero) == [OK]
    await asyncio.sleep(11)
    assert await member.bodies() == [b"3"]
    assert member.offset == 3


async def test_a_deleted_topic_ends_its_deliveries(broker: SingleBroker) -> None:
    await sent(broker, 2)
    member = Member(broker)
    got = await member.receive()
    await committed(broker, DeleteTopic("orders", 1))
    assert await member.ack(*got) == [INVALID, INVALID]
    assert not broker.broker.context.machine.state.pop.queues
    await sent(broker, 1)
    assert await member.bodies() == [b"2"]


@pytest.mark.parametrize("remove_offsets", [True, False])
async def test_a_deleted_group_begins_where_its_offset_is(
    broker: SingleBroker, remove_offsets: bool
) -> None:
    await sent(broker, 3)
    member = Member(broker)
    zero, one, two = await member.receive()
    await member.ack(zero, two)
    await committed(broker, DeleteGroup("g", remove_offsets, 1))
    assert await member.ack(one) == [INVALID]
    expected = [0, 1, 2] if remove_offsets else [1, 2]
    assert [each.offset for each in await member.receive()] == expected


async def test_queues_that_a_topic_loses_keep_their_deliveries(broker: SingleBroker) -> None:
    await broker.create_topic("orders", 4)
    await broker.send("orders", 3, b"last")
    member = Member(broker)
    (got,) = await member.receive(queue=3)
    await broker.create_topic("orders", 2)
    with pytest.raises(UnknownQueueError):
        await member.receive(queue=3)
    assert await member.bodies(queue=None) == []
    changed = await member.pop.change_invisible("g", "orders", got.receipt_handle, 5000)
    assert changed.status is OK
    await broker.create_topic("orders", 4)
    await asyncio.sleep(6)
    assert await member.bodies(queue=3) == [b"last"]


async def test_a_new_group_begins_at_the_first_message_or_where_it_asked_first(
    broker: SingleBroker,
) -> None:
    await sent(broker, 2)
    context = broker.broker.context
    await committed(broker, Expire(context.machine.applied_end))
    await sent(broker, 1)
    assert await Member(broker, "early").bodies() == [b"2"]
    late = Member(broker, "late")
    assert await late.bodies(from_end=True) == []
    await sent(broker, 1)
    assert await late.bodies(from_end=True) == [b"3"]
