"""FIFO order: one message of a message group at a time, and in order also when received again."""

from __future__ import annotations

import asyncio

from broker.limits import CONSUME
from broker.state.commands import PutGroup
from broker.topics_and_groups import GroupConfig
from store.message.record import PROPERTIES_BYTES_MAX
from tests.broker.pop.pop_client import EXPIRED, OK, Member, committed, sent
from tests.broker.single_broker import SingleBroker, messages


async def sent_to(broker: SingleBroker, groups: str) -> None:
    """One message for each letter, of the message group of that letter."""
    await sent(broker, 0)
    for group in groups:
        await sent(broker, 1, group=group)


async def offsets(member: Member, count: int = 32) -> list[int]:
    return [each.offset for each in await member.receive(count, fifo=True)]


async def test_one_message_of_each_group_is_out_at_a_time(broker: SingleBroker) -> None:
    await sent_to(broker, "aabac")
    member = Member(broker)
    got = await member.receive(fifo=True)
    assert [each.offset for each in got] == [0, 2, 4]
    assert await offsets(member) == []
    assert await member.ack(got[0]) == [OK]
    assert await offsets(member) == [1]
    assert await member.ack(got[1], got[2]) == [OK, OK]
    assert await offsets(member) == []
    assert member.offset == 1


async def test_the_order_is_kept_when_a_message_is_received_again(broker: SingleBroker) -> None:
    await sent_to(broker, "aab")
    member = Member(broker)
    assert await offsets(member) == [0, 2]
    await asyncio.sleep(11)
    again = await member.receive(1, fifo=True)
    assert [(each.offset, each.delivery_attempt) for each in again] == [(0, 2)]
    assert await offsets(member) == [2]
    await member.ack(*again)
    (one,) = await member.receive(fifo=True)
    assert (one.offset, one.delivery_attempt) == (1, 1)


async def test_a_long_row_of_one_group_does_not_hide_others(broker: SingleBroker) -> None:
    await sent_to(broker, "a" * 80 + "b")
    member = Member(broker)
    assert await offsets(member) == [0]
    assert await offsets(member) == [80]


async def test_a_row_without_end_is_looked_at_in_part(broker: SingleBroker) -> None:
    await sent_to(broker, "a" * 300 + "b")
    member = Member(broker)
    first = await member.receive(fifo=True)
    assert await offsets(member) == []
    await asyncio.sleep(0.1)
    queue = broker.broker.context.machine.state.pop.queues["g", "orders", 0]
    assert len(queue.deliveries) == CONSUME.pop_waiting_rows_max + 1
    for _ in range(60):
        await member.ack(*first)
        first = await member.receive(1, fifo=True)
        assert len(first) == 1
    assert await offsets(member) == [300]


async def test_an_ack_lets_who_waits_have_the_next(broker: SingleBroker) -> None:
    await sent_to(broker, "aa")
    member = Member(broker)
    (first,) = await member.receive(fifo=True)
    waiting = asyncio.ensure_future(member.receive(fifo=True, hold=20))
    await asyncio.sleep(1)
    assert not waiting.done()
    await member.ack(first)
    (second,) = await waiting
    assert second.offset == 1


async def test_a_dead_letter_lets_the_next_go_out(broker: SingleBroker) -> None:
    await sent_to(broker, "aa")
    await committed(broker, PutGroup.of(GroupConfig("g", retry_max_times=0), 1))
    member = Member(broker)
    (first,) = await member.receive(fifo=True)
    await asyncio.sleep(11)
    assert await offsets(member) == [1]
    assert await member.ack(first) == [EXPIRED]
    assert [each.body for each in messages(await broker.pull("%DLQ%g", 0, 0))] == [b"0"]


async def test_a_dead_letter_without_room_for_marks_lets_the_next_go_out(
    broker: SingleBroker,
) -> None:
    await broker.create_topic("orders")
    full = f"p\x01{'x' * (PROPERTIES_BYTES_MAX - 3)}\x02"
    for properties in (full, "p\x01x\x02"):
        await broker.send("orders", 0, b"m", properties)
    await committed(broker, PutGroup.of(GroupConfig("g", retry_max_times=0), 1))
    member = Member(broker)
    (first,) = await member.receive(fifo=True)
    await asyncio.sleep(11)
    assert await offsets(member) == [1]
    (dead,) = messages(await broker.pull("%DLQ%g", 0, 0))
    assert (dead.body, dead.properties) == (b"m", full.encode())
    assert await member.ack(first) == [EXPIRED]


async def test_what_was_received_without_order_stands_before_all_behind_it(
    broker: SingleBroker,
) -> None:
    await sent_to(broker, "abc")
    member = Member(broker)
    (first,) = await member.receive(1)
    assert await offsets(member) == []
    await member.ack(first)
    assert await offsets(member) == [1, 2]


async def test_messages_without_a_group_are_one_group(broker: SingleBroker) -> None:
    await sent(broker, 2)
    member = Member(broker)
    assert await offsets(member) == [0]


async def test_a_wait_does_not_look_again_for_a_delivery_that_ended(broker: SingleBroker) -> None:
    """The time of an acknowledged delivery passed; each look found it due, and looked again."""
    await sent_to(broker, "a")
    member = Member(broker)
    (got,) = await member.receive(fifo=True, invisible_ms=2000)
    assert await member.ack(got) == [OK]
    waiting = asyncio.ensure_future(member.receive(hold=20, fifo=True))
    await asyncio.sleep(0.1)
    before = member.pop.held.events
    await asyncio.sleep(10)
    assert member.pop.held.events <= before + 1
    assert len(member.pop.held) == 1
    waiting.cancel()


async def test_what_was_acknowledged_is_forgotten(broker: SingleBroker) -> None:
    """Offsets of waiting messages stayed in memory for as long as the leader led."""
    member = Member(broker)
    for _ in range(4):
        await sent_to(broker, "a" * 50)
        for _ in range(50):
            (got,) = await member.receive(1, fifo=True, invisible_ms=1000)
            assert await member.ack(got) == [OK]
        await asyncio.sleep(2)
        assert not await member.receive(1, fifo=True)
    pending = broker.broker.context.batcher.pop_queue(("g", "orders", 0))
    assert pending is not None
    assert len(pending) == 0
    assert len(pending._visible) <= 64
