"""Blocking work whose result somebody waits for, on a real thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from threading import Event, get_ident

import pytest

from dledger.node.executor import StoppedError, ThreadExecutor, result_of
from tests.support.virtual_network import turns

SECONDS = 10.0


def lane() -> ThreadExecutor:
    return ThreadExecutor(asyncio.get_running_loop(), "lane")


async def test_the_loop_turns_while_the_work_is_done() -> None:
    turned = Event()

    def work(_go_on: Callable[[], None]) -> int:
        assert turned.wait(SECONDS)
        return get_ident()

    executor = lane()
    asyncio.get_running_loop().call_soon(turned.set)
    assert await result_of(executor, work) != get_ident()
    executor.close()


async def test_work_that_fails_says_why() -> None:
    def work(_go_on: Callable[[], None]) -> None:
        raise OSError(5, "the disk failed")

    executor = lane()
    with pytest.raises(OSError, match="the disk failed"):
        await result_of(executor, work)
    executor.close()


def pieces(begun: Event, ends: Event, ended: list[str]) -> Callable[[Callable[[], None]], str]:
    """Work that ends when it is told that nobody wants its result, but not at once."""

    def until_stopped(go_on: Callable[[], None]) -> Iterator[None]:
        while True:
            go_on()
            yield

    def work(go_on: Callable[[], None]) -> str:
        begun.set()
        try:
            for _ in until_stopped(go_on):
                ended[:] = ["at work"]
        except StoppedError:
            assert ends.wait(SECONDS)
            ended[:] = ["closed its files"]
            raise
        raise AssertionError

    return work


@pytest.mark.parametrize("times", [1, 3])
async def test_who_is_cancelled_stops_the_work_and_waits_for_its_end(times: int) -> None:
    begun, ends, ended = Event(), Event(), list[str]()

    loop, executor = asyncio.get_running_loop(), lane()
    task = loop.create_task(result_of(executor, pieces(begun, ends, ended)))
    await loop.run_in_executor(None, begun.wait)
    for _ in range(times):
        task.cancel()
        await turns(10)
    assert not task.done()
    ends.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["closed its files"]
    executor.close()


async def test_who_is_cancelled_when_the_work_is_done_has_no_result() -> None:
    loop, executor = asyncio.get_running_loop(), lane()
    done = loop.create_future()

    def work(_go_on: Callable[[], None]) -> int:
        loop.call_soon_threadsafe(done.set_result, None)
        return 7

    task = loop.create_task(result_of(executor, work))
    await done
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    executor.close()
