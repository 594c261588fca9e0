"""Answers of POP follow the log: what is committed, refused, unknown, or kept by a restart."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dledger.errors import NotLeaderError, OutcomeUnknownError
from store.message.record import decode_record
from tests.broker.pop.pop_client import (
    EXPIRED,
    OK,
    Member,
    sent,
)
from tests.broker.single_broker import SingleBroker, messages, running_broker
from tests.support.virtual_network import NetworkedLoop


async def test_an_answer_waits_for_its_entry(broker: SingleBroker) -> None:
    await sent(broker, 1)
    member = Member(broker)
    broker.log_executor.hold()
    receiving = asyncio.ensure_future(member.receive())
    await asyncio.sleep(1)
    assert not receiving.done()
    broker.log_executor.release()
    (got,) = await receiving
    broker.log_executor.hold()
    acknowledging = asyncio.ensure_future(member.ack(got))
    await asyncio.sleep(1)
    assert not acknowledging.done()
    assert await member.ack(got) == [EXPIRED]  # by what is pending
    broker.log_executor.release()
    assert await acknowledging == [OK]


async def test_what_is_refused_leaves_the_deliveries_as_they_are(broker: SingleBroker) -> None:
    await sent(broker, 2)
    member = Member(broker)
    zero, _ = await member.receive(2)
    batcher = broker.broker.context.batcher
    acknowledging = asyncio.ensure_future(member.ack(zero))
    await asyncio.sleep(0)
    batcher._refuse_pending(NotLeaderError(None))
    with pytest.raises(NotLeaderError):
        await acknowledging
    assert await member.ack(zero) == [OK]


async def test_one_turn_is_one_entry(broker: SingleBroker) -> None:
    await sent(broker, 8)
    member = Member(broker)
    got = await member.receive()
    machine = broker.broker.context.machine
    before = machine.changed_index
    await asyncio.gather(*[member.ack(each) for each in got])
    assert machine.changed_index - before == 1


async def test_a_restart_keeps_deliveries_and_attempts(loop: NetworkedLoop, tmp_path: Path) -> None:
    handles: list[str] = []

    async with running_broker(loop, tmp_path, clock_runs=True) as broker:
        await sent(broker, 3)
        member = Member(broker)
        got = await member.receive(invisible_ms=3_600_000)
        await member.ack(got[1])
        changed = await member.pop.change_invisible("g", "orders", got[2].receipt_handle, 1)
        assert changed.status is OK
        handles.append(got[0].receipt_handle)
    async with running_broker(loop, tmp_path, clock_runs=True) as broker:
        member = Member(broker)
        await asyncio.sleep(0.1)
        (again,) = await member.receive()
        assert (again.offset, again.delivery_attempt) == (2, 2)
        assert await member.ack(*handles) == [OK]
        assert await member.ack(again) == [OK]
        assert member.offset == 3


async def test_the_clock_never_runs_behind_the_last_delivery(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    async with running_broker(loop, tmp_path, clock_runs=True) as broker:
        await sent(broker, 1)
        broker.now_ms += 3_600_000
        await Member(broker).receive(invisible_ms=10_000)
    async with running_broker(loop, tmp_path, clock_runs=True) as broker:
        await asyncio.sleep(21)  # it runs half as fast
        assert len(await Member(broker).receive()) == 1


async def test_a_received_record_is_that_of_the_log(broker: SingleBroker) -> None:
    await sent(broker, 1, tags="a")
    (got,) = await Member(broker).receive()
    (pulled,) = messages(await broker.pull("orders", 0, 0))
    assert decode_record(got.record) == pulled


async def test_an_unknown_outcome_is_told(broker: SingleBroker) -> None:
    await sent(broker, 1)
    member = Member(broker)
    (got,) = await member.receive()
    context = broker.broker.context
    broker.log_executor.hold()
    acknowledging = asyncio.ensure_future(member.ack(got))
    await asyncio.sleep(0.1)
    (batch,) = context.batcher._in_flight
    context.batcher._proposed(batch, OutcomeUnknownError(9, 9))
    with pytest.raises(OutcomeUnknownError):
        await acknowledging
    broker.log_executor.release()


async def test_a_refused_delivery_that_nobody_waits_for_stops_no_node(
    broker: SingleBroker,
) -> None:
    """The request has its answer already: another queue was refused first."""

    await broker.create_topic("orders")
    member = Member(broker)
    for queue in (0, 1):
        assert not await member.receive(queue=queue)  # nothing yet
    await sent(broker, 1)
    context = broker.broker.context
    following = context.batcher.pop_queue(("g", "orders", 1))
    assert following is not None
    complaints: list[dict[str, Any]] = []
    broker.loop.set_exception_handler(lambda _loop, told: complaints.append(told))
    context.pop._rng = Random(2)  # begins with queue 0
    async with following.lock:
        receiving = asyncio.ensure_future(member.result(queue=None))
        await asyncio.sleep(0)
        assert context.batcher.pending_bytes
        context.batcher.close()
    await asyncio.wait([receiving])
    assert isinstance(receiving.exception(), NotLeaderError)
    del receiving
    gc.collect()
    assert complaints == []
