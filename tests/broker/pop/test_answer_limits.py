"""What one answer of POP holds: a receive request takes no message that it could not give out.

Each delivery counts as an attempt. A message that is taken and never given out becomes a dead
letter without having been delivered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from broker.delivery import offset_quota
from broker.errors import QuotaExceededError
from broker.group_commit.pending_batch import Completion, QueueMessages
from broker.limits import CONSUME, STATE
from broker.pop import receiver
from broker.pop.pop_request import PoppedMessage
from broker.remoting.protocol.frame import FRAME_BODY_SIZE_MAX
from broker.state.commands import Command, PopReceive
from dledger.errors import BusyError
from tests.broker.pop.pop_client import Member, sent
from tests.broker.single_broker import SingleBroker, running_broker
from tests.support.virtual_network import NetworkedLoop

LIMITS = CONSUME._replace(pop_bytes_max=3000)


@pytest.fixture(autouse=True)
def small_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver, "CONSUME", LIMITS)


async def large_messages(broker: SingleBroker, sizes: list[int], *, queues: int = 1) -> None:
    """Bodies of these sizes, in each of so many queues."""
    await broker.create_topic("orders", queues=4)
    for queue_id in range(queues):
        for number, size in enumerate(sizes):
            group = f"__SHARDINGKEY\x01{number}\x02"
            assert (await broker.send("orders", queue_id, bytes(size), group)).code == 0


def size_of(messages: tuple[PoppedMessage, ...]) -> int:
    return sum(len(each.record) for each in messages)


def test_an_answer_fits_into_a_frame() -> None:
    """With its header, and if a follower passes it on."""
    assert CONSUME.pop_bytes_max < FRAME_BODY_SIZE_MAX - (1 << 20)


@pytest.mark.parametrize("fifo", [False, True])
@pytest.mark.parametrize("queue", [None, 0])
async def test_many_large_messages_come_in_several_answers(
    broker: SingleBroker, queue: int | None, fifo: bool
) -> None:
    queues = 4 if queue is None else 1
    await large_messages(broker, [700] * 6, queues=queues)
    member = Member(broker)
    got: list[tuple[int, int]] = []
    while messages := await member.receive(queue=queue, fifo=fifo):
        assert size_of(messages) <= LIMITS.pop_bytes_max
        assert all(each.delivery_attempt == 1 for each in messages)
        got += [(each.queue, each.offset) for each in messages]
    assert sorted(got) == [(queue_id, offset) for queue_id in range(queues) for offset in range(6)]


@pytest.mark.parametrize("fifo", [False, True])
async def test_a_message_that_is_larger_than_an_answer_comes_alone(
    broker: SingleBroker, fifo: bool
) -> None:
    await large_messages(broker, [100, 5000, 100])
    member = Member(broker)
    for offsets in ([0], [1], [2], []):
        messages = await member.receive(fifo=fifo)
        assert [each.offset for each in messages] == offsets


async def test_messages_that_are_visible_again_share_the_bytes_with_new_ones(
    broker: SingleBroker,
) -> None:
    await large_messages(broker, [700] * 6)
    member = Member(broker)
    for each in await member.receive(2):
        await member.pop.change_invisible("g", "orders", each.receipt_handle, 0)
    messages = await member.receive()
    assert [each.delivery_attempt for each in messages] == [2, 2, 1]
    assert [each.offset for each in await member.receive()] == [3, 4, 5]


async def test_a_queue_without_room_for_an_offset_takes_no_messages_of_others(
    loop: NetworkedLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_broker(loop, tmp_path, clock_runs=True) as broker:
        await sent(broker, 2)
        await broker.send("orders", 1, b"x")
        member = Member(broker)
        assert len(await member.receive(1)) == 1
        offsets = broker.broker.context.machine.state.offset_count
        monkeypatch.setattr(offset_quota, "STATE", STATE._replace(offsets_max=offsets))
        with pytest.raises(QuotaExceededError):
            await member.receive(queue=1)
        # Queue 0 is first, whose offset is there.
        monkeypatch.setattr(member.pop._rng, "randrange", lambda *bounds: len(bounds) - 1)
        (got,) = await member.receive(queue=None)
        assert (got.queue, got.offset, got.delivery_attempt) == (0, 1, 1)


async def test_a_group_that_finds_no_room_for_its_offsets_is_not_created(
    loop: NetworkedLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_broker(loop, tmp_path, clock_runs=True) as broker:
        await sent(broker, 1)
        monkeypatch.setattr(offset_quota, "STATE", STATE._replace(offsets_max=3))
        state, member = broker.broker.context.machine.state, Member(broker)
        with pytest.raises(QuotaExceededError):
            await member.receive(queue=None)
        await asyncio.sleep(1)
        assert (state.groups, state.offset_count) == ({}, 0)
        assert await member.bodies(queue=0) == [b"0"]


async def test_a_queue_whose_messages_find_no_room_in_the_log_takes_none_of_others(
    loop: NetworkedLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_broker(loop, tmp_path, clock_runs=True) as broker:
        await sent(broker, 1)
        await broker.send("orders", 1, b"x")
        member, batcher = Member(broker), broker.broker.context.batcher
        add = batcher.add_in_one_entry

        def add_for_queue_0(
            messages: Sequence[QueueMessages],
            commands: Sequence[Command],
            completion: Completion | None = None,
        ) -> None:
            if any(isinstance(each, PopReceive) and each.queue_id == 1 for each in commands):
                raise BusyError(1, 1)
            add(messages, commands, completion)

        monkeypatch.setattr(batcher, "add_in_one_entry", add_for_queue_0)
        with pytest.raises(BusyError):
            await member.receive(queue=1)
        # Queue 0 is first.
        monkeypatch.setattr(member.pop._rng, "randrange", lambda *bounds: len(bounds) - 1)
        (got,) = await member.receive(queue=None)
        assert (got.queue, got.offset, got.delivery_attempt) == (0, 0, 1)
        monkeypatch.setattr(batcher, "add_in_one_entry", add)
        (got,) = await member.receive(queue=None)
        assert (got.queue, got.offset, got.delivery_attempt) == (1, 0, 1)
