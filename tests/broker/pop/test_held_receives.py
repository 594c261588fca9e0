"""Requests of POP that wait: what ends a wait, and whose."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from broker.errors import UnavailableError, WrongStateError
from broker.group_commit.batcher import PIPELINE_ENTRIES, Batcher
from broker.group_commit.pending_pop import PendingPopQueue
from broker.limits import CONSUME
from broker.pop import held_receives
from broker.pop.held_receives import NOTIFIED_MS, REFUSED_MS, HeldReceives
from broker.pop.pop_request import PopRequest
from broker.pop.receivable_messages import ReceivableMessageFinder, ReceivableMessages
from broker.state.commands import CommitOffset
from broker.state.pop_queues import PopQueue
from dledger.errors import BusyError, NotLeaderError
from dledger.node.state_machine import Leadership
from dledger.raft.raft_state import Role
from store.errors import DamagedError
from tests.broker.pop.pop_client import (
    INVISIBLE_MS,
    Member,
    sent,
)
from tests.broker.single_broker import SingleBroker, batched
from tests.support.virtual_network import NetworkedLoop


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


async def test_a_client_that_goes_while_it_looks_leaves_its_message_to_the_next(
    broker: SingleBroker,
) -> None:
    async with Held(broker) as held:
        async with held.slow_reads():
            await sent(broker, 1)
            held.first.cancel()
        await asyncio.sleep(0.1)
        assert held.second.done()
        assert [each.offset for each in held.second.result()] == [0]


async def test_a_look_that_is_refused_leaves_its_message_to_the_next(broker: SingleBroker) -> None:
    async with Held(broker) as held:
        batcher = broker.broker.context.batcher
        async with held.slow_reads():
            await sent(broker, 1)
            broker.log_executor.hold()
            for number in range(PIPELINE_ENTRIES):
                batcher.add_command(CommitOffset("other", "orders", 0, number))
                await asyncio.sleep(0.1)
            batcher._node = _BusyOnce(batcher)
        await asyncio.sleep(0.1)
        assert len(held.member.pop.held) == 1  # the other has looked and waits again
        broker.log_executor.release()
        with pytest.raises(BusyError):
            await held.first
        await asyncio.sleep(REFUSED_MS / 1000 + 0.1)
        assert held.second.done()
        assert [each.offset for each in held.second.result()] == [0]


async def test_what_refuses_one_look_refuses_no_more_than_one_a_second(
    broker: SingleBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Held(broker, members=20) as held:
        with monkeypatch.context() as damaged:
            damaged.setattr(ReceivableMessageFinder, "find", _damaged)
            await sent(broker, 1)
            await asyncio.sleep(0.1)
            refused = [sum(each.done() for each in held.receives)]
            for _ in range(3):
                await asyncio.sleep(REFUSED_MS / 1000)
                refused.append(sum(each.done() for each in held.receives))
        assert refused == [1, 2, 3, 4]
        for each in held.receives[:4]:
            with pytest.raises(UnavailableError, match="cannot be read now"):
                each.result()
        await asyncio.sleep(REFUSED_MS / 1000)
        assert [each.offset for each in held.receives[4].result()] == [0]


async def test_who_looks_while_another_is_refused_looks_again(loop: NetworkedLoop) -> None:
    held = HeldReceives(loop, lambda: 0)
    asked = PopRequest("g", "orders", 0, 1, 1, int((loop.time() + 20) * 1000))
    seen, began = held.events, loop.time()
    held.refused("orders", "g")
    assert await held.wait(asked, None, seen)
    assert loop.time() == began


async def test_who_waits_gets_what_a_client_did_not_wait_for_once_it_is_visible(
    broker: SingleBroker,
) -> None:
    async with Held(broker) as held:
        async with held.slow_reads():
            await sent(broker, 1)
            broker.log_executor.hold()
        await asyncio.sleep(0.1)
        held.first.cancel()
        broker.log_executor.release()
        began = broker.loop.time()
        (got,) = await held.second
        assert got.delivery_attempt == 2
        assert broker.loop.time() - began == pytest.approx(INVISIBLE_MS / 1000, abs=0.2)


async def test_whoever_finds_a_message_lets_the_next_look_before_its_entry_is_committed(
    broker: SingleBroker,
) -> None:
    """So the receive requests of one turn share an entry, as everything else does."""
    async with Held(broker) as held:
        async with held.slow_reads():
            body = b"".join([batched(b"x")] * 2)
            assert (await broker.send("orders", 0, body, m="true")).code == 0
            broker.log_executor.hold()
        await asyncio.sleep(0.1)
        found_by_now = held.queue.next_offset
        broker.log_executor.release()
        assert found_by_now == 2
        got = await asyncio.gather(held.first, held.second)
        assert [[each.offset for each in one] for one in got] == [[0], [1]]


async def test_who_only_asks_for_messages_takes_none_from_those_who_wait(
    broker: SingleBroker,
) -> None:
    await sent(broker, 0)
    member = Member(broker)
    deadline_ms = int((broker.loop.time() + 20) * 1000)
    asked = PopRequest("g", "orders", 0, 1, 1, deadline_ms)
    asks = asyncio.ensure_future(member.pop.has_messages(asked))
    await asyncio.sleep(1)
    waits = asyncio.ensure_future(member.bodies(hold=20))
    await asyncio.sleep(1)
    await sent(broker, 1)
    await asyncio.sleep(NOTIFIED_MS / 1000 + 0.1)
    assert asks.done()
    assert asks.result()
    assert waits.done()
    assert waits.result() == [b"0"]


async def test_a_message_that_one_member_is_told_of_and_takes_is_told_to_no_other(
    broker: SingleBroker,
) -> None:
    await sent(broker, 0)
    member = Member(broker)
    deadline_ms = int((broker.loop.time() + 20) * 1000)
    asked = PopRequest("g", "orders", 0, 1, 1, deadline_ms)
    told = [asyncio.ensure_future(member.pop.has_messages(asked)) for _ in range(3)]
    await asyncio.sleep(1)
    await sent(broker, 1)
    await asyncio.sleep(NOTIFIED_MS / 2000)
    assert [each.done() for each in told] == [True, False, False]
    assert await member.bodies(invisible_ms=60_000) == [b"0"]
    await asyncio.sleep(20)
    assert [each.result() for each in told] == [True, False, False]


@pytest.mark.parametrize("ending", ["acknowledged", "changed", "given up"])
async def test_the_next_message_of_a_group_goes_though_nobody_waits_for_the_answer(
    broker: SingleBroker, ending: str
) -> None:
    await sent(broker, 2, group="x")
    member = Member(broker)
    (got,) = await member.receive(fifo=True, invisible_ms=60_000)
    waits = asyncio.ensure_future(member.receive(fifo=True, hold=20))
    await asyncio.sleep(1)
    broker.log_executor.hold()
    handle = got.receipt_handle
    ways: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
        "acknowledged": lambda: member.ack(got),
        "changed": lambda: member.pop.change_invisible("g", "orders", handle, 0),
        "given up": lambda: member.pop.to_dead_letter("g", "orders", handle),
    }
    goes = asyncio.ensure_future(ways[ending]())
    await asyncio.sleep(0.1)
    goes.cancel()
    broker.log_executor.release()
    await asyncio.sleep(0.1)
    assert waits.done()
    assert [each.offset for each in waits.result()] == [0 if ending == "changed" else 1]


class Held:
    """Members whose requests for one message are held, those of the first for longer."""

    def __init__(self, broker: SingleBroker, members: int = 2) -> None:
        self.broker = broker
        self.member = Member(broker)
        self._members = members

    async def __aenter__(self) -> Held:
        await sent(self.broker, 0)
        self.receives = [
            asyncio.ensure_future(self.member.receive(1, hold=30)) for _ in range(self._members)
        ]
        self.first, self.second, *_ = self.receives
        await asyncio.sleep(1)
        assert len(self.member.pop.held) == self._members
        return self

    async def __aexit__(self, *_error: object) -> None:
        for each in self.receives:
            each.cancel()

    @property
    def queue(self) -> PopQueue:
        return self._pending().queue

    def _pending(self) -> PendingPopQueue:
        pending = self.broker.broker.context.batcher.pop_queue(("g", "orders", 0))
        assert pending is not None
        return pending

    @asynccontextmanager
    async def slow_reads(self) -> AsyncIterator[None]:
        """Whoever looks into the queue waits until the end of the block, and has one turn of the
        loop then."""
        async with self._pending().lock:
            yield
        await asyncio.sleep(0)


async def _damaged(*_search: object) -> ReceivableMessages:
    raise DamagedError("the log", 0, "its CRC is wrong")


class _BusyOnce:
    """The node of a batcher, which refuses the next entry."""

    def __init__(self, batcher: Batcher) -> None:
        self._batcher = batcher
        self._node = batcher._node

    def propose(self, *_entry: object) -> int:
        self._batcher._node = self._node
        raise BusyError(1, 1)


async def test_expressions_of_requests_that_wait_fill_no_memory(
    broker: SingleBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await sent(broker, 0)
    member = Member(broker)
    limits = CONSUME._replace(held_expressions_max=100)
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
