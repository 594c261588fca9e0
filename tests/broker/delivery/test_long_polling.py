"""Pulls that wait for a message or for their deadline."""

from __future__ import annotations

import asyncio

from broker.delivery.long_polling import RUNS_IN_A_TURN, HeldPull, LongPolling
from tests.support.virtual_network import NetworkedLoop, turns

MANY = 10 * RUNS_IN_A_TURN


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
