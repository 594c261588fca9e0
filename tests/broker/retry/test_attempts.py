"""The attempts of a group whose members send back (RocketMQ 4) and receive by POP (RocketMQ 5)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.pop.pop_request import PoppedMessage
from broker.remoting.protocol.codes import RequestCode
from broker.retry.attempts import ATTEMPTS_MAX, attempts, attempts_sent_back, retries_exhausted
from broker.state.commands import PutGroup
from broker.state.pop_queues import PopDelivery
from broker.topics_and_groups import GroupConfig
from store.message.record import MessageRecord, decode_record
from tests.broker.pop.pop_client import INVISIBLE_MS, OK, Member, committed, sent
from tests.broker.single_broker import SingleBroker, messages

RETRY, DEAD = "%RETRY%g", "%DLQ%g"


@pytest.fixture
def broker_settings() -> dict[str, Any]:
    return {"clock_runs": True}


async def made(broker: SingleBroker, retries: int, count: int = 1, retry_queues: int = 1) -> Member:
    await sent(broker, count)
    group = GroupConfig("g", retry_max_times=retries, retry_queues=retry_queues)
    await committed(broker, PutGroup.of(group, 1))
    return Member(broker)


async def received(member: Member, **changed: Any) -> tuple[PoppedMessage, ...]:
    return await member.receive(queue=None, retries=True, **changed)


async def expire() -> None:
    await asyncio.sleep(INVISIBLE_MS / 1000 + 0.1)


async def send_back(broker: SingleBroker, topic: str, offset: int = 0) -> MessageRecord:
    """A member of RocketMQ 4 pulls the message and fails."""
    record = messages(await broker.pull(topic, 0, offset))[0]
    ext = {"offset": str(record.position), "group": "g", "delayLevel": "1"}
    answer = await broker.ask(RequestCode.CONSUMER_SEND_MSG_BACK, ext | {"originTopic": topic})
    assert answer.code == 0
    return record


async def dead(broker: SingleBroker) -> list[tuple[bytes, int]]:
    await asyncio.sleep(0.1)  # nobody waits for them
    if broker.broker.context.machine.end_offset(DEAD, 0) == 0:
        return []
    found = messages(await broker.pull(DEAD, 0, 0))
    return [(each.body, each.reconsume_times) for each in found]


async def test_a_message_that_was_sent_back_goes_on_being_counted_by_pop(
    broker: SingleBroker,
) -> None:
    member = await made(broker, 1)
    await send_back(broker, "orders")
    await asyncio.sleep(1.1)
    (first,) = [each for each in await received(member) if each.topic == RETRY]
    assert (first.delivery_attempt, first.delivery_number) == (2, 1)
    await expire()
    assert [each.topic for each in await received(member)] == ["orders"]
    assert await dead(broker) == [(b"0", 2)]


async def test_a_delivery_by_pop_counts_for_a_message_that_is_sent_back(
    broker: SingleBroker,
) -> None:
    member = await made(broker, 1)
    (first,) = await received(member)
    assert first.delivery_attempt == 1
    await expire()
    await send_back(broker, "orders")
    assert await dead(broker) == [(b"0", 2)]


async def test_who_sends_back_what_it_received_by_pop_has_failed_once(broker: SingleBroker) -> None:
    member = await made(broker, 1)
    (first,) = await received(member)
    await send_back(broker, "orders")
    assert await member.ack(first) == [OK]
    await asyncio.sleep(1.1)
    (again,) = await received(member)
    assert (again.topic, again.delivery_attempt) == (RETRY, 2)
    assert await dead(broker) == []


async def test_a_group_that_changes_there_and_back_has_its_attempts_in_sum(
    broker: SingleBroker,
) -> None:
    member = await made(broker, 3)
    assert len(await received(member)) == 1
    await expire()
    await send_back(broker, "orders")
    assert await member.ack(*await received(member)) == [OK]
    await asyncio.sleep(1.1)
    (third,) = await received(member)
    assert (third.topic, third.delivery_attempt) == (RETRY, 3)
    await expire()
    assert decode_record(third.record).reconsume_times == 2
    await send_back(broker, RETRY)
    assert await dead(broker) == [(b"0", 4)]


@pytest.mark.parametrize("fifo", [False, True])
async def test_who_gives_a_message_up_has_all_its_attempts_in_the_dead_letter(
    broker: SingleBroker, *, fifo: bool
) -> None:
    member = await made(broker, 9)
    await send_back(broker, "orders")
    await asyncio.sleep(1.1)
    found = await received(member, fifo=fifo)
    (again,) = [each for each in found if each.topic == RETRY]
    given_up = await member.pop.to_dead_letter("g", "orders", again.receipt_handle)
    assert given_up.status is OK
    assert await dead(broker) == [(b"0", 2)]


async def test_a_group_without_retry_queues_receives_a_message_once(broker: SingleBroker) -> None:
    member = await made(broker, 16, retry_queues=0)
    assert len(await received(member)) == 1
    await expire()
    assert await received(member) == ()
    assert await dead(broker) == [(b"0", 1)]


async def test_a_message_is_received_once_whatever_its_producer_says(broker: SingleBroker) -> None:
    member = await made(broker, 2, count=0)
    await broker.send("orders", 0, b"often", j="7")
    await broker.send("orders", 0, b"below 0", j="-7")
    often, below = await received(member)
    assert (often.delivery_attempt, below.delivery_attempt) == (8, 1)
    await expire()
    assert [each.delivery_attempt for each in await received(member)] == [2]
    assert await dead(broker) == [(b"often", 8)]


async def test_exhausted_messages_that_cannot_be_stored_keep_no_other_back(
    broker: SingleBroker,
) -> None:
    """A request for one message must look past them."""
    await broker.create_topic(DEAD, 1, perm=4)
    member = await made(broker, 2, count=0)
    for _ in range(3):
        await broker.send("orders", 0, b"stuck", j="2")
    await broker.send("orders", 0, b"fresh")
    assert len(await member.receive()) == 4
    await expire()
    assert await member.bodies(1) == [b"fresh"]
    await expire()
    assert await member.bodies(1) == [b"fresh"]
    await broker.create_topic(DEAD, 1, perm=6)
    assert await member.bodies(1) == []
    assert await dead(broker) == [(b"stuck", 3)] * 3


async def test_deliveries_of_messages_that_are_exhausted_by_their_records_are_forgotten(
    broker: SingleBroker,
) -> None:
    member = await made(broker, 2, count=0)
    pending = None
    for _ in range(5):
        for _ in range(32):
            await broker.send("orders", 0, b"m", j="2")
        assert len(await member.receive()) == 32
        await expire()
        assert await member.receive() == ()
        pending = broker.broker.context.batcher.pop_queue(("g", "orders", 0))
        assert pending is not None
        assert not pending.queue.deliveries
    assert pending is not None
    assert len(pending.exhausted) <= 64 + 32
    assert len(await dead(broker)) == 32


@pytest.mark.parametrize(
    ("reconsume_times", "deliveries", "found"),
    [(0, 0, 0), (0, 3, 3), (2, 1, 3), (-5, 1, 1), (ATTEMPTS_MAX, 2, ATTEMPTS_MAX)],
)
def test_attempts_are_those_of_the_record_and_those_by_pop(
    reconsume_times: int, deliveries: int, found: int
) -> None:
    assert attempts(reconsume_times, deliveries) == found


@pytest.mark.parametrize(
    ("delivery", "found"),
    [
        (None, 2),
        (PopDelivery(0, 0, 0, 7), 2),  # it waits for its message group
        (PopDelivery(100, 2, 1), 4),  # its time is over
        (PopDelivery(101, 2, 1), 3),
    ],
)
def test_a_delivery_that_is_out_is_the_attempt_that_is_sent_back(
    delivery: PopDelivery | None, found: int
) -> None:
    assert attempts_sent_back(1, delivery, 100) == found


@pytest.mark.parametrize(
    ("group", "failures", "times_max", "level", "exhausted"),
    [
        (GroupConfig("g", retry_max_times=2), 2, -1, 0, False),
        (GroupConfig("g", retry_max_times=2), 3, -1, 0, True),
        (GroupConfig("g", retry_max_times=2), 3, 3, 0, False),
        (GroupConfig("g", retry_max_times=0), 1, 3, 0, False),
        (GroupConfig("g", retry_max_times=0), 1, -1, 0, True),
        (GroupConfig("g", retry_max_times=-1), 1, -1, 0, True),  # older states have such groups
        (GroupConfig("g", retry_queues=0), 1, 3, 0, True),
        (GroupConfig("g"), 1, 3, -1, True),
    ],
)
def test_when_there_is_no_further_attempt(
    group: GroupConfig, failures: int, times_max: int, level: int, *, exhausted: bool
) -> None:
    assert retries_exhausted(group, failures, times_max, level) is exhausted
