"""Who waits for a change is woken by it, and by nothing else."""

from __future__ import annotations

import asyncio

import pytest

from broker.change_notice import ChangeNotice
from tests.support.virtual_network import NetworkedLoop, turns


async def test_all_who_wait_look_again_at_each_change(loop: NetworkedLoop) -> None:
    notice, reached, looked = ChangeNotice(loop), False, 0
    began = loop.time()

    def look() -> bool:
        nonlocal looked
        looked += 1
        return reached

    waiting = [asyncio.ensure_future(notice.wait_until(look, 10)) for _ in range(2)]
    await turns()
    assert looked == 2
    notice.changed()
    await turns()
    assert looked == 4
    assert not any(each.done() for each in waiting)
    reached = True
    notice.changed()
    assert await asyncio.gather(*waiting) == [True, True]
    assert loop.time() == began


async def test_a_wait_ends_with_its_time(loop: NetworkedLoop) -> None:
    notice, began = ChangeNotice(loop), loop.time()
    assert not await notice.wait_until(lambda: False, 3)
    assert loop.time() - began == pytest.approx(3)
    notice.changed()
    assert await notice.wait_until(lambda: True, 0)


async def test_one_who_gives_up_leaves_the_others_waiting(loop: NetworkedLoop) -> None:
    notice = ChangeNotice(loop)
    first, second = (asyncio.ensure_future(notice.wait_until(lambda: False, 5)) for _ in range(2))
    await turns()
    first.cancel()
    await turns()
    assert first.cancelled()
    assert not second.done()
    notice.changed()
    assert not await second
