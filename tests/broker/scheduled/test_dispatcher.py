"""Steps of a delivery: none is staged behind one that has failed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.delivery.message_reader import LogRange
from broker.group_commit.pending_batch import Completion, QueueMessages
from broker.scheduled.dispatcher import (
    DISPATCHES_MAX,
    RETRY_SECONDS_MAX,
    RETRY_SECONDS_MIN,
    Dispatcher,
    DispatcherContext,
    DueMessage,
)
from broker.state.commands import Command, Schedule
from dledger.errors import BusyError
from store.errors import DamagedError, OutOfDescriptorsError, StoreError
from store.index.consume_queue import ConsumeQueue
from store.io.filesystem import Bytes
from tests.support.virtual_network import NetworkedLoop, turns

Loaded = Callable[[Sequence[Bytes], StoreError | None], None]


class Numbers(Dispatcher):
    """Delivers numbers, one a step, whose records say nothing."""

    def __init__(self, world: World, loop: NetworkedLoop) -> None:
        within = cast("Any", DispatcherContext)(world, world, world, loop, world.failures.append)
        super().__init__(within)
        self.applied = 0
        self._next = 0

    def _find(self) -> None:
        number = self._next
        due = DueMessage(cast("ConsumeQueue", None), 0, number, number, 1, 0)
        self._deliver([due], Schedule(1, number + 1), partial(self._advance_to, number + 1))

    def _restart_from_applied(self) -> None:
        self._next = self.applied

    def _advance_to(self, number: int) -> None:
        self._next = number

    def _republished(
        self, due: Sequence[DueMessage], records: Sequence[Bytes]
    ) -> list[QueueMessages]:
        return []


class World(SimpleNamespace):
    """Brings records, and ends steps, when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[tuple[int, Loaded]] = []
        self.steps: list[tuple[int, Completion]] = []
        self.failures: list[BaseException] = []
        self.room = True

    def load(self, ranges: Sequence[LogRange], done: Loaded) -> None:
        self.loads.append((ranges[0].position, done))

    def add_in_one_entry(
        self, messages: Sequence[QueueMessages], commands: Sequence[Command], done: Completion
    ) -> None:
        (command,) = commands
        assert isinstance(command, Schedule)
        if not self.room:
            raise BusyError(9, 8)
        self.steps.append((command.offset, done))

    async def brings(self, number: int, error: StoreError | None = None) -> None:
        position, done = self.loads.pop(0)
        assert position == number
        done([b""], error)
        await turns()

    async def ends(self, number: int, error: BusyError | None = None) -> None:
        step, done = self.steps.pop(0)
        assert step == number
        done(error)
        await turns()


@pytest.mark.parametrize("damage", [None, DamagedError("log/0", 5, "rotten")])
async def test_what_is_being_read_as_a_step_fails_is_not_staged(
    loop: NetworkedLoop, damage: StoreError | None
) -> None:
    world = World()
    numbers = Numbers(world, loop)
    numbers.look()
    await world.brings(0)
    await world.ends(1, BusyError(9, 8))
    await world.brings(1, damage)
    assert world.steps == []
    await asyncio.sleep(RETRY_SECONDS_MAX)
    await world.brings(0)
    assert [number for number, _ in world.steps] == [1]
    numbers.stop()


async def test_all_begins_anew_once_every_step_has_ended(loop: NetworkedLoop) -> None:
    world = World()
    numbers = Numbers(world, loop)
    numbers.look()
    for number in range(DISPATCHES_MAX):
        await world.brings(number)
    await world.ends(1)
    numbers.applied = 1
    await world.ends(2, BusyError(9, 8))
    await world.brings(DISPATCHES_MAX)
    await asyncio.sleep(RETRY_SECONDS_MAX)
    assert world.loads == []
    await world.ends(3, BusyError(9, 8))
    await world.ends(4, BusyError(9, 8))
    await asyncio.sleep(RETRY_SECONDS_MAX)
    await world.brings(1)
    assert [number for number, _ in world.steps] == [2]
    numbers.stop()


async def test_who_is_refused_behind_steps_that_are_stored_tries_again_soon(
    loop: NetworkedLoop,
) -> None:
    """There is room for one step at a time: each goes as soon as the one before is stored."""
    world = World()
    numbers = Numbers(world, loop)
    numbers.look()
    for number in range(8):
        await world.brings(number)
        world.room = False
        await world.brings(number + 1)
        world.room = True
        numbers.applied = number + 1
        await world.ends(number + 1)
        await asyncio.sleep(2 * RETRY_SECONDS_MIN)
    numbers.stop()


async def test_a_queue_whose_file_cannot_be_opened_now_is_read_again(
    loop: NetworkedLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot(_numbers: Numbers) -> None:
        raise OutOfDescriptorsError("a file cannot be opened now")

    world = World()
    numbers = Numbers(world, loop)
    with monkeypatch.context() as patch:
        patch.setattr(Numbers, "_find", cannot)
        numbers.look()
        await asyncio.sleep(3 * RETRY_SECONDS_MAX)
    assert world.failures == []
    await asyncio.sleep(RETRY_SECONDS_MAX)
    await world.brings(0)
    assert [number for number, _ in world.steps] == [1]
    numbers.stop()
