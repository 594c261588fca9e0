"""A node that drops a wrong state keeps a checkpoint to begin with."""

from __future__ import annotations

import asyncio
from random import Random
from types import SimpleNamespace
from typing import cast

import pytest

from dledger.errors import StateDivergedError
from dledger.node.lifecycle import Lifecycle
from dledger.node.peer_calls import PeerCalls
from dledger.node.state_divergence import PAUSE_SECONDS, StateDivergence
from dledger.raft.core import Raft
from simulator.engine.disk import SimulatedFileSystem
from simulator.engine.event_loop import VirtualLoop
from store.replica import ReplicaStore
from store.state.checkpoint import Checkpoint, Checkpoints
from tests.support.fake_executor import FakeExecutor

FIRST_INDEX = 5


class Follower:
    """What a node has for this, with checkpoints of entries 10 and 20."""

    def __init__(self, loop: VirtualLoop) -> None:
        fs = SimulatedFileSystem(Random(1))
        fs.make_directories("/data/state")
        self.checkpoints = Checkpoints(fs, "/data/state")
        for index in (10, 20):
            self.save(index)
        self.background = FakeExecutor(loop)
        self.ended: list[BaseException] = []
        self.lifecycle = Lifecycle(node="n0", on_silent=lambda: None, on_fatal=self.ended.append)
        self.lifecycle.begin()
        store = SimpleNamespace(
            recovered=SimpleNamespace(checkpoint=None, last_index=FIRST_INDEX),
            checkpoints=self.checkpoints,
            first_index=FIRST_INDEX,
        )
        core = SimpleNamespace(node="n0", leads=False, leader=None, peers=("n1", "n2"))
        self.divergence = StateDivergence(
            core=cast(Raft, core),
            store=cast(ReplicaStore, store),
            calls=cast(PeerCalls, None),
            background=self.background,
            loop=loop,
            lifecycle=self.lifecycle,
            stop_serving=lambda: None,
            transfer_leadership=lambda: None,
            advance=lambda: None,
        )

    def save(self, index: int) -> None:
        self.checkpoints.save(Checkpoint(index, 100 * index, 0, 1, ((1, 0),), index, b""))


@pytest.fixture
async def follower(loop: VirtualLoop) -> Follower:
    return Follower(loop)


async def test_the_newest_checkpoint_up_to_which_the_state_was_proved_is_kept(
    follower: Follower,
) -> None:
    follower.divergence.agreed(15)
    follower.divergence.differs(25, "queues")
    await asyncio.sleep(2 * PAUSE_SECONDS)
    assert follower.checkpoints.indexes == [10]
    (reason,) = follower.ended
    assert isinstance(reason, StateDivergedError)


async def test_a_checkpoint_that_is_just_being_saved_takes_the_proved_one_and_not_all_of_them(
    follower: Follower,
) -> None:
    """The log's beginning has expired, so without any the node could not be opened again."""
    follower.divergence.agreed(15)
    follower.background.hold()
    follower.background.submit(lambda: follower.save(30), lambda _none, _error: None)
    follower.divergence.differs(25, "queues")
    await asyncio.sleep(2 * PAUSE_SECONDS)
    follower.background.release()
    await asyncio.sleep(1)
    assert follower.checkpoints.indexes == [20, 30]
    assert not follower.ended  # it waits for the leader's checkpoint
    assert follower.lifecycle.alive
