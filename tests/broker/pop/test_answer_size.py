"""An answer has room for so many bytes, and ends before the message that does not fit."""

from __future__ import annotations

import asyncio
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.delivery.inflated_bodies import inflated_size
from broker.limits import CONSUME
from store.message.record import decode_record
from tests.broker.pop.pop_client import Member
from tests.broker.single_broker import SingleBroker, running_broker
from tests.support.virtual_network import NetworkedLoop


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two messages of 500 bytes fit, three do not."""
    few = replace(CONSUME, pull_bytes_max=1500)
    monkeypatch.setattr("broker.pop.receivable_messages.CONSUME", few)


async def sent(broker: SingleBroker, queue: int, *bodies: bytes, group: str = "") -> None:
    properties = f"__SHARDINGKEY\x01{group}\x02" if group else ""
    for body in bodies:
        assert (await broker.send("orders", queue, body, properties)).code == 0


async def received(member: Member, **changed: Any) -> list[tuple[int, bytes, int]]:
    """Queue, the body's first byte and attempt of each message of one answer."""
    return [
        (each.queue, decode_record(each.record).body[:1], each.delivery_attempt)
        for each in await member.receive(**changed)
    ]


@pytest.mark.parametrize("fifo", [False, True])
async def test_the_rest_comes_with_the_next_answer_and_at_the_first_attempt(
    broker: SingleBroker, fifo: bool
) -> None:
    await broker.create_topic("orders", queues=1)
    for name in b"abcd":
        await sent(broker, 0, bytes((name,)) * (5000 if name == ord("c") else 500), group=chr(name))
    member = Member(broker)
    answers = [await received(member, fifo=fifo) for _ in range(4)]
    assert answers == [[(0, b"a", 1), (0, b"b", 1)], [(0, b"c", 1)], [(0, b"d", 1)], []]


async def test_the_queues_of_an_answer_share_its_room(broker: SingleBroker) -> None:
    """So a frame has room for it: five messages of four megabytes, one of each queue, have none."""
    await broker.create_topic("orders", queues=5)
    for queue in range(5):
        await sent(broker, queue, b"x" * 500)
    member = Member(broker)
    answers = [await received(member, queue=None) for _ in range(4)]
    assert [len(each) for each in answers] == [2, 2, 1, 0]
    got = sorted(each for answer in answers for each in answer)
    assert got == [(queue, b"x", 1) for queue in range(5)]


async def test_what_is_visible_again_and_does_not_fit_stays_so(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    async with running_broker(loop, tmp_path, clock_runs=True) as broker:
        await broker.create_topic("orders", queues=1)
        await sent(broker, 0, b"a" * 500, b"b" * 500, b"c" * 500, b"d" * 500)
        member = Member(broker)
        assert len(await received(member)) == 2
        assert len(await received(member, count=1)) == 1
        await asyncio.sleep(11)
        assert await received(member) == [(0, b"a", 2), (0, b"b", 2)]
        assert await received(member) == [(0, b"c", 2), (0, b"d", 1)]


async def test_a_wire_that_decompresses_counts_what_it_gives_out(broker: SingleBroker) -> None:
    await broker.create_topic("orders", queues=1)
    for name in (b"a", b"b", b"c"):
        await broker.send("orders", 0, zlib.compress(name * 600), f="1")
    member = Member(broker)
    assert len(await member.receive(size_of=inflated_size)) == 2
    assert len(await member.receive(size_of=inflated_size)) == 1
    other = Member(broker, group="decompresses")
    assert len(await other.receive()) == 3
