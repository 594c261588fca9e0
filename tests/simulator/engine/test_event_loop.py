"""Virtual time: it jumps, it never goes back, and ties are settled by who came first."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import AsyncIterator, Iterator

import pytest

from simulator.engine.disk import PowerLossError
from simulator.engine.event_loop import SpinningError, StalledError, VirtualLoop
from simulator.engine.process import Process
from simulator.engine.process_loop import ProcessLoop


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    made = VirtualLoop()
    yield made
    made.close()


@pytest.fixture
def log() -> list[str]:
    return []


@pytest.fixture
def process(log: list[str]) -> Process:
    return Process(after=lambda: log.append("."), died=lambda: log.append("died"))


def test_time_jumps_to_the_next_timer(loop: VirtualLoop) -> None:
    loop.run_until_complete(asyncio.sleep(86_400.0))
    assert loop.time() == 86_400.0


def test_timers_of_one_instant_run_in_the_order_in_which_they_were_made(loop: VirtualLoop) -> None:
    order: list[int] = []
    for place in range(100):
        loop.call_at(1.0, order.append, place)
    loop.run_until_complete(asyncio.sleep(2.0))
    assert order == list(range(100))


def test_timers_run_in_the_order_of_their_times(loop: VirtualLoop) -> None:
    rng = random.Random(5)
    times = [rng.random() for _ in range(200)]
    ran: list[tuple[float, float]] = []

    def run(when: float) -> None:
        ran.append((when, loop.time()))

    for when in times:
        loop.call_at(when, run, when)
    loop.run_until_complete(asyncio.sleep(1.0))
    assert ran == [(when, when) for when in sorted(times)]


def test_a_cancelled_timer_takes_no_time(loop: VirtualLoop) -> None:
    loop.call_later(5.0, pytest.fail, "it was cancelled").cancel()
    loop.call_later(2.0, loop.stop)
    loop.run_forever()
    assert loop.time() == 2.0


def test_a_timer_of_the_past_runs_now(loop: VirtualLoop) -> None:
    ran: list[float] = []
    loop.call_later(3.0, lambda: loop.call_at(1.0, lambda: ran.append(loop.time())))
    loop.run_until_complete(asyncio.sleep(4.0))
    assert ran == [3.0]


def test_what_another_thread_would_schedule_is_a_callback_like_any(loop: VirtualLoop) -> None:
    ran: list[str] = []
    loop.call_soon(ran.append, "first")
    loop.call_soon_threadsafe(ran.append, "second")
    loop.run_until_complete(asyncio.sleep(0))
    assert ran == ["first", "second"]


def test_waiting_for_what_cannot_happen_is_an_error(loop: VirtualLoop) -> None:
    with pytest.raises(StalledError, match="nothing is left to happen"):
        loop.run_until_complete(loop.create_future())


def test_a_dead_process_is_called_back_no_more(
    loop: VirtualLoop, process: Process, log: list[str]
) -> None:
    mine = ProcessLoop(loop, process)
    mine.call_later(1.0, log.append, "before")
    mine.call_later(3.0, log.append, "after")
    loop.call_at(2.0, process.end)
    loop.run_until_complete(asyncio.sleep(4.0))
    assert log == ["before", "."]


def test_a_paused_process_is_called_back_late_and_in_order(
    loop: VirtualLoop, process: Process, log: list[str]
) -> None:
    mine = ProcessLoop(loop, process)
    mine.call_later(1.0, lambda: log.append(f"first at {mine.time():g}"))
    mine.call_later(2.0, lambda: log.append(f"second at {mine.time():g}"))
    process.pause()
    loop.call_at(7.0, process.resume)
    loop.run_until_complete(asyncio.sleep(8.0))
    assert log == ["first at 7", ".", "second at 7", "."]


def test_what_a_late_event_cancels_does_not_run(
    loop: VirtualLoop, process: Process, log: list[str]
) -> None:
    """As on a real loop: handles that are due at the same time can still cancel each other."""
    mine = ProcessLoop(loop, process)
    late = mine.call_later(2.0, log.append, "timer")
    soon = mine.call_soon(log.append, "handle")
    process.pause()
    process.run(late.cancel)
    process.run(soon.cancel)
    loop.call_at(7.0, process.resume)
    loop.run_until_complete(asyncio.sleep(8.0))
    assert log == [".", ".", ".", "."]


def test_a_process_that_dies_in_its_first_late_event_misses_the_others(
    process: Process, log: list[str]
) -> None:
    process.pause()
    process.run(process.end)
    process.run(log.append, "never")
    process.resume()
    assert "never" not in log


def test_an_event_in_which_the_power_goes_ends_the_process(
    process: Process, log: list[str]
) -> None:
    def unlucky() -> None:
        raise PowerLossError("pwrite /data")

    process.run(unlucky)
    assert log == ["died"]


def test_tasks_of_a_process_run_as_its_events(
    loop: VirtualLoop, process: Process, log: list[str]
) -> None:
    mine = ProcessLoop(loop, process)

    async def work() -> str:
        answer: asyncio.Future[str] = mine.create_future()
        mine.call_later(1.0, answer.set_result, "answer")
        return await answer

    task = mine.create_task(work())
    task.add_done_callback(lambda done: log.append(done.result()))
    loop.run_until_complete(asyncio.sleep(2.0))
    assert log[-2:] == ["answer", "."]


def test_what_a_dead_process_iterates_over_is_left_alone(
    loop: VirtualLoop, process: Process
) -> None:
    """Its task goes with the last timer that would have woken it."""
    errors: list[object] = []
    loop.set_exception_handler(lambda _, context: errors.append(context))
    own = ProcessLoop(loop, process)

    async def ticks() -> AsyncIterator[int]:
        while True:
            await asyncio.sleep(1.0)
            yield 1

    async def main() -> None:
        async for _ in ticks():
            pass

    async def outlive() -> None:
        process.run(own.create_task, main())
        await asyncio.sleep(1.5)
        process.end()
        await asyncio.sleep(5.0)

    loop.run_until_complete(outlive())
    gc.collect()
    loop.run_until_complete(asyncio.sleep(1.0))
    assert errors == []


@pytest.mark.parametrize(("pause", "spins"), [(0.001, True), (0.01, False)])
def test_a_process_that_wakes_each_millisecond_spins(
    loop: VirtualLoop, process: Process, pause: float, spins: bool
) -> None:
    errors: list[object] = []
    loop.set_exception_handler(lambda _loop, context: errors.append(context["exception"]))
    of_process = ProcessLoop(loop, process)

    def wake() -> None:
        of_process.call_later(pause, wake)

    of_process.call_soon(wake)
    loop.run_until_complete(asyncio.sleep(3.0))
    assert [type(error) for error in errors] == [SpinningError] * spins
