"""Pulls that wait for a message or for their deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from struct import pack
from typing import Self

from broker.delivery.long_polling import LOOKS_IN_A_TURN, RUNS_IN_A_TURN, HeldPull, LongPolling
from tests.support.virtual_network import NetworkedLoop, turns

MANY = 10 * RUNS_IN_A_TURN


class Client:
    """Owns pulls."""

    def on_close(self, callback: Callable[[Self], None]) -> None:
        self.close = partial(callback, self)


class Runs:
    """Counts what runs in each turn of the loop."""

    def __init__(self, loop: NetworkedLoop) -> None:
        self.polling = LongPolling(loop)
        self.in_turn = [0]
        self._loop = loop

    def hold(self, count: int, deadline: float) -> None:
        for _ in range(count):
            assert self.polling.hold(HeldPull("orders", 0, None, self._run), deadline)

    def _run(self) -> None:
        if not self.in_turn[-1]:
            self._loop.call_soon(self.in_turn.append, 0)
        self.in_turn[-1] += 1


async def test_pulls_that_one_message_wakes_leave_turns_to_others(loop: NetworkedLoop) -> None:
    runs = Runs(loop)
    runs.hold(MANY, loop.time() + 9)
    runs.polling.arrived("orders", 0, b"")
    await turns(15)
    assert max(runs.in_turn) == RUNS_IN_A_TURN
    assert sum(runs.in_turn) == MANY
    assert len(runs.polling) == 0


async def test_pulls_with_one_deadline_leave_turns_to_others(loop: NetworkedLoop) -> None:
    runs = Runs(loop)
    runs.hold(MANY, loop.time() + 9)
    await asyncio.sleep(8.9)
    assert sum(runs.in_turn) == 0
    await asyncio.sleep(0.2)
    assert max(runs.in_turn) == RUNS_IN_A_TURN
    assert sum(runs.in_turn) == MANY
    assert len(runs.polling) == 0


async def test_a_pull_whose_client_goes_after_it_was_woken_does_not_run(
    loop: NetworkedLoop,
) -> None:
    runs, gone = Runs(loop), list[str]()
    runs.hold(MANY, loop.time() + 9)
    pull = HeldPull("orders", 0, None, lambda: gone.append("read for nobody"))
    assert runs.polling.hold(pull, loop.time() + 9)
    runs.polling.wake("orders", 0)
    await turns(2)
    runs.polling.drop(pull)
    await turns(15)
    assert sum(runs.in_turn) == MANY
    assert not gone


async def test_neither_does_one_whose_connection_breaks_after_it_was_woken(
    loop: NetworkedLoop,
) -> None:
    runs, client, ran = Runs(loop), Client(), list[str]()
    early = HeldPull("orders", 0, None, lambda: ran.append("early"), client)
    assert runs.polling.hold(early, loop.time() + 9)
    runs.hold(MANY, loop.time() + 9)
    late = HeldPull("orders", 0, None, lambda: ran.append("read for nobody"), client)
    assert runs.polling.hold(late, loop.time() + 9)
    runs.polling.wake("orders", 0)
    await turns(2)
    client.close()
    await turns(15)
    assert sum(runs.in_turn) == MANY
    assert ran == ["early"]


async def test_a_pull_that_fails_does_not_keep_the_others_from_running(
    loop: NetworkedLoop,
) -> None:
    runs = Runs(loop)
    failures: list[object] = []
    loop.set_exception_handler(lambda _loop, context: failures.append(context["exception"]))

    def fail() -> None:
        raise KeyError("planted")

    assert runs.polling.hold(HeldPull("orders", 0, None, fail), loop.time() + 9)
    runs.hold(3, loop.time() + 9)
    runs.polling.wake("orders", 0)
    await turns(5)
    assert sum(runs.in_turn) == 3
    assert len(failures) == 1


class CountedTags(frozenset[int]):
    """Counts how often it is compared."""

    compared = 0

    def isdisjoint(self, other: Iterable[object], /) -> bool:
        CountedTags.compared += 1
        return super().isdisjoint(other)


async def test_one_message_is_compared_with_the_pulls_of_its_queue_over_many_turns(
    loop: NetworkedLoop,
) -> None:
    """Sixty thousand of them wait for another tag, and nobody else has the turn."""
    polling, ran = LongPolling(loop), list[int]()
    count = 10 * LOOKS_IN_A_TURN

    def hold(tag: int) -> None:
        pull = HeldPull("orders", 0, CountedTags([tag]), lambda: ran.append(tag))
        assert polling.hold(pull, loop.time() + 900)

    def arrived(tag: int) -> None:
        polling.arrived("orders", 0, pack(">qiq", 0, 100, tag))

    for number in range(count):
        hold(number % 2)
    most = CountedTags.compared = 0
    arrived(5)
    for turn in range(60):
        before = CountedTags.compared
        await turns(1)
        most = max(most, CountedTags.compared - before)
        if turn == 3:
            hold(5)  # after that message
            arrived(6)
        if turn == 5:
            arrived(1)  # what has been looked at already is looked at once more
    assert 0 < most <= LOOKS_IN_A_TURN
    assert ran == [1] * (count // 2)
    assert len(polling) == count // 2 + 1
    arrived(5)
    await turns(20)
    assert ran[-1] == 5
    polling.close()
    assert len(polling) == 0
