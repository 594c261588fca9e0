"""Requests of POP that wait: what ends a wait, and whose."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from broker.errors import (
    WrongStateError,
)
from broker.limits import CONSUME
from broker.pop import held_receives
from dledger.errors import NotLeaderError
from dledger.node.state_machine import Leadership
from dledger.raft.raft_state import Role
from tests.broker.pop.pop_client import (
    Member,
    sent,
)
from tests.broker.single_broker import SingleBroker


async def test_a_message_ends_the_wait_of_one_member(broker: SingleBroker) -> None:
    await sent(broker, 0)
    member = Member(broker)
    waiting = [
        asyncio.ensure_future(member.bodies(hold=20, queue=None, invisible_ms=60_000))
        for _ in range(3)
    ]
    await asyncio.sleep(1)
    assert len(member.pop.held) == 3
    await sent(broker, 2)
    await asyncio.sleep(0.1)
    done = [each.result() for each in waiting if each.done()]
    assert sorted(done) == [[b"0"], [b"1"]]
    await asyncio.sleep(20)
    assert sorted(each.result() for each in waiting) == [[], [b"0"], [b"1"]]
    assert len(member.pop.held) == 0


async def test_a_delivery_that_becomes_visible_ends_a_wait(broker: SingleBroker) -> None:
    await sent(broker, 1)
    member = Member(broker)
    early = asyncio.ensure_future(member.receive(hold=30, queue=1))
    await member.receive(invisible_ms=5000)
    began = broker.loop.time()
    (got,) = await member.receive(hold=30)
    assert got.delivery_attempt == 2
    assert broker.loop.time() - began == pytest.approx(5, abs=0.1)
    early.cancel()


async def test_who_waits_is_woken_by_the_time_that_others_set_later(broker: SingleBroker) -> None:
    await sent(broker, 1)
    member = Member(broker)
    (got,) = await member.receive()
    waiting = asyncio.ensure_future(member.receive(hold=30))
    await asyncio.sleep(1)
    await member.pop.change_invisible("g", "orders", got.receipt_handle, 2000)
    began = broker.loop.time()
    (again,) = await waiting
    assert again.delivery_attempt == 2
    assert broker.loop.time() - began == pytest.approx(2, abs=0.1)


async def test_whoever_waits_is_refused_when_the_node_leads_no_more(broker: SingleBroker) -> None:
    await sent(broker, 0)
    member = Member(broker)
    waiting = asyncio.ensure_future(member.receive(hold=20))
    await asyncio.sleep(1)
    context = broker.broker.context
    broker.broker.leadership_changed(
        Leadership(Role.FOLLOWER, context.batcher.term + 1, None, False)
    )
    with pytest.raises(NotLeaderError):
        await waiting
    with pytest.raises(NotLeaderError):
        await member.receive()


async def test_a_node_with_a_wrong_state_gives_nothing_out(broker: SingleBroker) -> None:
    await sent(broker, 0)
    member = Member(broker)
    waiting = asyncio.ensure_future(member.receive(hold=20))
    await asyncio.sleep(1)
    broker.broker._state_diverged()
    with pytest.raises(WrongStateError):
        await waiting
    with pytest.raises(WrongStateError):
        await member.ack("0 1 2 3 0 broker-a 0 0")


async def test_a_client_that_goes_leaves_its_message_to_the_next(broker: SingleBroker) -> None:
    await sent(broker, 0)
    member = Member(broker)
    gone = asyncio.ensure_future(member.receive(hold=20))
    stays = asyncio.ensure_future(member.bodies(hold=20))
    await asyncio.sleep(1)
    member.pop.held.arrived("orders")  # the first is told of something
    gone.cancel()
    await sent(broker, 1)
    assert await stays == [b"0"]


async def test_expressions_of_requests_that_wait_fill_no_memory(
    broker: SingleBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await sent(broker, 0)
    member = Member(broker)
    limits = replace(CONSUME, held_expressions_max=100)
    monkeypatch.setattr(held_receives, "CONSUME", limits)
    for _ in range(2):
        waiting = asyncio.ensure_future(member.receive(hold=20, tags="a" * 60))
        await asyncio.sleep(1)
        assert await member.receive(hold=20, tags="b" * 60) == ()
        assert len(member.pop.held) == 1
        others = asyncio.ensure_future(member.receive(hold=20))
        await asyncio.sleep(1)
        assert len(member.pop.held) == 2
        waiting.cancel()
        others.cancel()
        await asyncio.sleep(0)
