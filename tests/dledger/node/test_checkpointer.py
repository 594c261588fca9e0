"""Housekeeping is looked for when the log moved, and otherwise seldom."""

from __future__ import annotations

import asyncio
from unittest.mock import patch

import pytest

from dledger.node.checkpointer import (
    EVIDENCE_SECONDS,
    MARK_SECONDS,
    REPLAYED_ENTRIES,
    Checkpointer,
)
from simulator.engine.event_loop import VirtualLoop
from simulator.hosts.hash_state_machine import HashChainCheckpoint
from store.errors import FatalDiskError, OutOfDescriptorsError
from tests.dledger.node.member import Member


def marked_index(member: Member) -> int:
    """What is noted as committed and durable."""
    return member.node.checkpointer._marked_index


async def test_the_mark_follows_an_entry_that_comes_at_any_time(member: Member) -> None:
    for seconds in (0.0, 0.3, 1.1, 2.7, 5.03):
        await asyncio.sleep(seconds)
        member.propose()
        await asyncio.sleep(2 * MARK_SECONDS)
        assert marked_index(member) == member.node.core.commit_index


async def test_a_mark_that_waits_for_another_one_is_not_forgotten(member: Member) -> None:
    checkpointer = member.node.checkpointer
    await asyncio.sleep(3)
    checkpointer._marking = True  # one is under way, for longer than usual
    member.propose()
    await asyncio.sleep(3)
    checkpointer._marking = False
    await asyncio.sleep(2 * MARK_SECONDS)
    assert marked_index(member) == member.node.core.commit_index


async def test_the_keeper_of_an_idle_node_looks_around_once_a_second(member: Member) -> None:
    await asyncio.sleep(3)
    with patch.object(Checkpointer, "_save_mark", autospec=True) as looks:
        await asyncio.sleep(10)
        assert 9 <= looks.call_count <= 11 / EVIDENCE_SECONDS


async def test_the_keeper_of_a_busy_node_looks_around_five_times_a_second(member: Member) -> None:
    with patch.object(Checkpointer, "_save_mark", autospec=True) as looks:
        for _ in range(100):
            member.propose()
            await asyncio.sleep(0.02)
        assert 8 <= looks.call_count <= 2 / MARK_SECONDS + 1


async def test_a_checkpoint_is_saved_though_what_it_gives_up_cannot_be_removed_now(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    def finish(_work: HashChainCheckpoint, *, saved: bool) -> None:
        raise OutOfDescriptorsError("consumequeue/orders/0 cannot be opened now")

    monkeypatch.setattr(HashChainCheckpoint, "finish", finish)
    told: list[BaseException | None] = []
    member.propose()
    await asyncio.sleep(1)
    member.node.checkpointer.checkpoint_then(told.append)
    await asyncio.sleep(1)
    assert told == [None]
    assert member.node.failure is None
    assert member.node.store.checkpoints.indexes == [member.node.core.commit_index]


async def test_no_checkpoint_is_saved_of_a_state_that_was_found_wrong_meanwhile(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that are kept are just being chosen then. Nothing that they need is removed."""
    ended: list[bool] = []
    monkeypatch.setattr(HashChainCheckpoint, "finish", lambda _work, *, saved: ended.append(saved))
    member.propose()
    await asyncio.sleep(1)
    member.log.hold()
    member.node.checkpointer.checkpoint()
    member.node.state_divergence.wrong = "queues"
    member.log.release()
    await asyncio.sleep(1)
    assert member.node.store.checkpoints.indexes == []
    assert ended == [False]
    member.node.state_divergence.wrong = ""


@pytest.mark.parametrize(
    ("entries", "saved"), [(REPLAYED_ENTRIES, True), (REPLAYED_ENTRIES // 2, False)]
)
async def test_what_a_start_replayed_is_not_replayed_again_if_it_was_much(
    loop: VirtualLoop, entries: int, saved: bool
) -> None:
    member = Member(loop)
    await member.node.start()
    await asyncio.sleep(2)
    for _ in range(entries):
        member.propose()
    await asyncio.sleep(1)
    assert member.node.store.checkpoints.indexes == []
    member.node.fail(FatalDiskError("it is killed"))
    await member.node.stop()
    again = Member(loop, fs=member.fs)
    await again.node.start()
    await asyncio.sleep(3)
    assert (again.node.store.checkpoints.indexes != []) is saved
    await again.node.stop()
