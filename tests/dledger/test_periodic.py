"""What is done again and again: when, until when, and after an error."""

from __future__ import annotations

import asyncio

from dledger.periodic import Periodic
from simulator.engine.event_loop import VirtualLoop


class Acts:
    """Notes when it is called."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.at: list[float] = []
        self.error: Exception | None = None
        self._loop = loop

    def act(self) -> None:
        self.at.append(self._loop.time())
        if self.error is not None:
            raise self.error


async def test_it_goes_on_after_an_error_until_it_is_stopped(loop: VirtualLoop) -> None:
    acts, errors = Acts(loop), []
    loop.set_exception_handler(lambda _loop, context: errors.append(context["exception"]))
    periodic = Periodic(loop, 2.0, acts.act)
    began = loop.time()
    periodic.start()
    acts.error = ValueError("a bad look")
    await asyncio.sleep(5.0)
    periodic.stop()
    await asyncio.sleep(5.0)
    assert acts.at == [began + 2.0, began + 4.0]
    assert errors == [acts.error, acts.error]


async def test_a_hurried_call_takes_the_place_of_the_next(loop: VirtualLoop) -> None:
    acts = Acts(loop)
    periodic = Periodic(loop, 2.0, acts.act)
    periodic.hurry()
    began = loop.time()
    periodic.start()
    await asyncio.sleep(1.0)
    periodic.hurry()
    await asyncio.sleep(2.5)
    periodic.stop()
    assert acts.at == [began + 1.0, began + 3.0], "it was not started when it was hurried first"
