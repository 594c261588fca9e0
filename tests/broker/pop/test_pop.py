"""The door of POP: received once, invisible for a time, acknowledged for ever."""

from __future__ import annotations

import asyncio

import pytest

from broker.remoting.protocol.codes import RequestCode
from broker.state.commands import PutGroup
from broker.topics_and_groups import GroupConfig
from tests.broker.pop.pop_client import (
    EXPIRED,
    INVALID,
    INVISIBLE_MS,
    OK,
    Member,
    committed,
    sent,
)
from tests.broker.single_broker import SingleBroker, messages


async def test_a_message_is_received_once_until_its_time_is_over(broker: SingleBroker) -> None:
    await sent(broker, 3)
    one, other = Member(broker), Member(broker)
    first = await one.receive(2)
    assert [each.offset for each in first] == [0, 1]
    assert [each.delivery_attempt for each in first] == [1, 1]
    assert {each.invisible_until_ms - each.delivered_ms for each in first} == {INVISIBLE_MS}
    assert await other.bodies() == [b"2"]
    assert await other.bodies() == []
    await asyncio.sleep(INVISIBLE_MS / 1000 + 0.1)
    again = await other.receive()
    assert [(each.offset, each.delivery_attempt) for each in again] == [(0, 2), (1, 2), (2, 2)]
    assert await one.ack(*first) == [EXPIRED, EXPIRED]
    assert await other.ack(*again) == [OK, OK, OK]
    await asyncio.sleep(60)
    assert await one.bodies() == []


async def test_an_acknowledged_message_is_never_received_again(broker: SingleBroker) -> None:
    await sent(broker, 3)
    member = Member(broker)
    zero, one, two = await member.receive()
    assert await member.ack(one) == [OK]
    assert await member.ack(one) == [EXPIRED]
    assert await member.ack(zero, zero) == [OK, EXPIRED]
    await asyncio.sleep(60)
    assert [each.offset for each in await member.receive()] == [2]
    assert await member.ack(two) == [EXPIRED]


async def test_the_groups_offset_is_its_first_message_without_an_ack(broker: SingleBroker) -> None:
    await sent(broker, 4)
    member = Member(broker)
    got = await member.receive(3)
    assert member.offset == 0
    await member.ack(got[1])
    assert member.offset == 0
    await member.ack(got[0])
    assert member.offset == 2
    await member.ack(got[2])
    assert member.offset == 3
    answer = await broker.ask(
        RequestCode.QUERY_CONSUMER_OFFSET,
        {"consumerGroup": "g", "topic": "orders", "queueId": "0"},
    )
    assert answer.ext["offset"] == "3"


async def test_a_changed_time_counts_from_now_and_has_a_handle_of_its_own(
    broker: SingleBroker,
) -> None:
    await sent(broker, 2)
    member = Member(broker)
    zero, one = await member.receive()
    await asyncio.sleep(9)
    longer = await member.pop.change_invisible("g", "orders", zero.receipt_handle, 20_000)
    assert longer.status is OK
    assert await member.ack(zero) == [EXPIRED]
    at_once = await member.pop.change_invisible("g", "orders", one.receipt_handle, 0)
    assert at_once.status is OK
    assert await member.ack(at_once.receipt_handle) == [EXPIRED]
    (again,) = await member.receive()
    assert (again.offset, again.delivery_attempt) == (1, 2)
    await asyncio.sleep(19)
    assert await member.bodies() == [b"1"]
    assert await member.ack(longer.receipt_handle) == [OK]


@pytest.mark.parametrize(
    "handle",
    ["", "x", "1 2 3 0 0 broker-a 0", "1 2 3 0 0 broker-b 0 0", "1 2 3 0 1 broker-a 0 0",
     "-1 2 3 0 0 broker-a 0 0", "٣ 2 3 0 0 broker-a 0 0", "9" * 600, "1 2 3 0 0 broker-a 7 0",
     f"0 {1 << 63} 3 0 0 broker-a 0 0"],
)  # fmt: skip
async def test_what_is_no_handle_of_this_broker_is_refused(
    broker: SingleBroker, handle: str
) -> None:
    await sent(broker, 1)
    member = Member(broker)
    await member.receive()
    assert await member.ack(handle) == [INVALID]
    changed = await member.pop.change_invisible("g", "orders", handle, 1000)
    assert changed.status is INVALID
    dead = await member.pop.to_dead_letter("g", "orders", handle)
    assert dead.status is INVALID


async def test_a_handle_of_another_group_offset_or_time_ends_nothing(broker: SingleBroker) -> None:
    await sent(broker, 2)
    member, other = Member(broker), Member(broker, "other")
    zero, _one = await member.receive()
    foreign, _ = await other.receive()
    fields = zero.receipt_handle.split(" ")
    assert await member.ack(foreign) == [EXPIRED]
    for place, value in ((1, "1"), (2, "1"), (3, "1"), (7, "9")):
        forged = [*fields[:place], value, *fields[place + 1 :]]
        assert await member.ack(" ".join(forged)) == [EXPIRED]
    assert await member.ack(zero) == [OK]
    assert await other.ack(foreign) == [OK]


async def test_after_the_last_attempt_a_message_is_a_dead_letter_and_no_delivery(
    broker: SingleBroker,
) -> None:
    await sent(broker, 1)
    member = Member(broker)
    await committed(broker, PutGroup.of(GroupConfig("g", retry_max_times=2), 1))
    for attempt in (1, 2, 3):
        (got,) = await member.receive(invisible_ms=1000)
        assert got.delivery_attempt == attempt
        await asyncio.sleep(1.1)
    assert await member.bodies() == []
    await asyncio.sleep(0.1)
    assert member.offset == 1
    (dead,) = messages(await broker.pull("%DLQ%g", 0, 0))
    assert (dead.body, dead.reconsume_times) == (b"0", 3)
    assert dead.property_map["RETRY_TOPIC"] == "orders"
    await asyncio.sleep(10)
    assert await member.bodies() == []
    assert len(messages(await broker.pull("%DLQ%g", 0, 0))) == 1


async def test_a_member_gives_a_message_up(broker: SingleBroker) -> None:
    await sent(broker, 1)
    member = Member(broker)
    (got,) = await member.receive()
    dead = await member.pop.to_dead_letter("g", "orders", got.receipt_handle)
    assert dead.status is OK
    assert [each.body for each in messages(await broker.pull("%DLQ%g", 0, 0))] == [b"0"]
    assert await member.ack(got) == [EXPIRED]
    again = await member.pop.to_dead_letter("g", "orders", got.receipt_handle)
    assert again.status is EXPIRED
    assert member.offset == 1


async def test_a_dead_letter_that_cannot_be_stored_waits_and_is_not_received(
    broker: SingleBroker,
) -> None:
    await sent(broker, 2)
    await broker.create_topic("%DLQ%g", 1, perm=4)
    member = Member(broker)
    await committed(broker, PutGroup.of(GroupConfig("g", retry_max_times=0), 1))
    await member.receive(1, invisible_ms=1000)
    await asyncio.sleep(2)
    assert await member.bodies() == [b"1"]
    await broker.create_topic("%DLQ%g", 1, perm=6)
    assert await member.bodies() == []
    await asyncio.sleep(0.1)
    assert [each.body for each in messages(await broker.pull("%DLQ%g", 0, 0))] == [b"0"]


async def test_the_same_attempt_gets_the_same_messages(broker: SingleBroker) -> None:
    await sent(broker, 4)
    member = Member(broker)
    first = await member.receive(2, attempt_id="a1")
    again = await member.receive(2, attempt_id="a1")
    assert [each.receipt_handle for each in again] == [each.receipt_handle for each in first]
    assert [each.offset for each in await member.receive(2, attempt_id="a2")] == [2, 3]
    await member.ack(first[0])
    assert [each.offset for each in await member.receive(2, attempt_id="a1")] == [1]
    await asyncio.sleep(11)
    renewed = await member.receive(2, attempt_id="a1")
    assert [(each.offset, each.delivery_attempt) for each in renewed] == [(1, 2), (2, 2)]
    assert await member.ack(first[1]) == [EXPIRED]
    assert await member.ack(renewed[0]) == [OK]


@pytest.mark.parametrize("attempt", range(8))
async def test_a_handle_expires_though_the_same_attempt_receives_again(
    broker: SingleBroker, attempt: int
) -> None:
    """Whatever chance makes the nonce of the attempt."""
    await sent(broker, 1)
    member = Member(broker)
    (first,) = await member.receive(attempt_id=f"a{attempt}")
    await asyncio.sleep(11)
    (again,) = await member.receive(attempt_id=f"a{attempt}")
    assert await member.ack(first) == [EXPIRED]
    assert await member.ack(again) == [OK]
