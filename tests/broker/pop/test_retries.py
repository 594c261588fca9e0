"""Messages of a group's retry topic, which dead letters are sent to again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker.pop.pop_request import PoppedMessage
from broker.state.commands import CommitOffset, PutGroup
from broker.topics_and_groups import GroupConfig
from store.message.record import decode_record
from tests.broker.pop.pop_client import EXPIRED, INVISIBLE_MS, OK, Member, committed, sent
from tests.broker.single_broker import SingleBroker, messages, running_broker
from tests.support.virtual_network import NetworkedLoop

RETRY = "%RETRY%g"


async def sent_again(broker: SingleBroker, *bodies: bytes, topic: str = "orders") -> None:
    for body in bodies:
        properties = f"RETRY_TOPIC\x01{topic}\x02" if topic else ""
        assert (await broker.send(RETRY, 0, body, properties)).code == 0


async def received(member: Member, **changed: Any) -> tuple[PoppedMessage, ...]:
    return await member.receive(queue=None, retries=True, **changed)


def bodies(found: tuple[PoppedMessage, ...]) -> list[bytes]:
    return sorted(decode_record(each.record).body for each in found)


@pytest.fixture
async def member(broker: SingleBroker) -> Member:
    """A member of a group that has received the messages of its topic."""
    await sent(broker, 1)
    found = Member(broker)
    assert await found.ack(*await received(found)) == [OK]
    return found


async def test_a_message_of_the_retry_topic_comes_until_it_is_acknowledged(
    broker: SingleBroker, member: Member
) -> None:
    state = broker.broker.context.machine.state
    assert [key for key in state.pop.queues if key[1] == RETRY] == [], "it is empty"
    await sent_again(broker, b"again")
    await sent(broker, 1)
    assert await member.bodies(queue=0) == [b"1"]
    (first,) = await received(member)
    assert (first.topic, decode_record(first.record).body) == (RETRY, b"again")
    assert await received(member) == ()
    await asyncio.sleep(INVISIBLE_MS / 1000 + 0.1)
    (second,) = [each for each in await received(member) if each.topic == RETRY]
    assert second.delivery_attempt == 2
    longer = await member.pop.change_invisible("g", "orders", second.receipt_handle, 20_000)
    assert await member.ack(first, second, longer.receipt_handle) == [EXPIRED, EXPIRED, OK]
    assert state.offset("g", RETRY, 0) == 1
    await asyncio.sleep(60)
    assert RETRY not in {each.topic for each in await received(member)}


async def test_it_ends_a_wait(broker: SingleBroker, member: Member) -> None:
    waiting = asyncio.ensure_future(received(member, hold=20.0))
    await asyncio.sleep(1)
    began = broker.loop.time()
    await sent_again(broker, b"again")
    assert bodies(await waiting) == [b"again"]
    assert broker.loop.time() - began < 1


async def test_who_gives_it_up_has_another_dead_letter(
    broker: SingleBroker, member: Member
) -> None:
    await sent_again(broker, b"given up", b"tried")
    await committed(broker, PutGroup.of(GroupConfig("g", retry_max_times=0), 1))
    given_up, _ = await received(member)
    assert (await member.pop.to_dead_letter("g", "orders", given_up.receipt_handle)).status is OK
    await asyncio.sleep(INVISIBLE_MS / 1000 + 0.1)
    assert await received(member) == ()
    await asyncio.sleep(0.1)
    dead = messages(await broker.pull("%DLQ%g", 0, 0))
    assert [each.body for each in dead] == [b"given up", b"tried"]
    assert {each.property_map["RETRY_TOPIC"] for each in dead} == {"orders"}


@pytest.mark.parametrize("fifo", [False, True])
async def test_each_comes_to_who_receives_from_its_first_topic(
    broker: SingleBroker, member: Member, *, fifo: bool
) -> None:
    await broker.create_topic("payments")
    other = Member(broker, topic="payments")
    await sent_again(broker, b"p0", topic="payments")
    await sent_again(broker, b"o0", b"o1")
    await sent_again(broker, b"p1", topic="payments")
    got: list[bytes] = []
    while found := await received(member, fifo=fifo):
        got += bodies(found)
        assert len(found) == (1 if fifo else 2)
        assert set(await member.ack(*found)) == {OK}
    assert got == [b"o0", b"o1"]
    (first, *_) = await received(other, count=1, fifo=fifo)
    await asyncio.sleep(INVISIBLE_MS / 1000 + 0.1)
    assert await received(member, fifo=fifo) == ()
    found = await received(other, count=1, fifo=fifo)
    assert (bodies(found), found[0].delivery_attempt) == ([b"p0"], 2)
    assert await other.ack(first, *found) == [EXPIRED, OK]
    assert bodies(await received(other, fifo=fifo)) == [b"p1"]


async def test_one_without_a_first_topic_comes_to_anybody(
    broker: SingleBroker, member: Member
) -> None:
    await sent_again(broker, b"m", topic="")
    assert bodies(await received(member)) == [b"m"]


async def test_a_group_that_was_pulling_goes_on_behind_what_it_has_consumed(
    broker: SingleBroker,
) -> None:
    await sent(broker, 0)
    member = Member(broker)
    assert await received(member) == ()
    await sent_again(broker, b"0", b"1")
    await committed(broker, CommitOffset("g", RETRY, 0, 1))
    assert bodies(await received(member)) == [b"1"]


async def test_a_restart_keeps_what_is_received(loop: NetworkedLoop, tmp_path: Path) -> None:
    async with running_broker(loop, tmp_path, clock_runs=True) as broker:
        await sent(broker, 0)
        member = Member(broker)
        assert await received(member) == ()
        await sent_again(broker, b"0", b"1")
        (zero, _one) = await received(member)
    async with running_broker(loop, tmp_path, clock_runs=True) as broker:
        member = Member(broker)
        assert await received(member) == ()
        assert await member.ack(zero) == [OK]
        await asyncio.sleep(INVISIBLE_MS / 1000 + 0.1)
        assert bodies(await received(member)) == [b"1"]
