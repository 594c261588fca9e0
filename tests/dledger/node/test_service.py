"""The life around a replica: when it is opened again, and when it is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

import pytest

from dledger.errors import ReopenError
from dledger.node.service import StopSignal, run_service, start_service
from store.errors import StoreError
from tests.support.virtual_network import turns


class FakeService:
    """Its start waits, or raises; it fails by itself later, if it is to."""

    def __init__(self, start: Exception | str | None = None, end: Exception | None = None) -> None:
        self.failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self.stopped = 0
        self.drains = 0
        self.clients_left: asyncio.Event | None = None
        self._start = start
        if end is not None:
            self.failed.set_result(end)

    async def start(self) -> None:
        if isinstance(self._start, Exception):
            raise self._start
        if self._start is not None:
            await asyncio.Event().wait()

    async def drain(self) -> None:
        self.drains += 1
        if self.clients_left is not None:
            await self.clients_left.wait()

    async def stop(self) -> None:
        self.stopped += 1


class Life:
    """Opens one service after the other."""

    def __init__(self, services: Sequence[FakeService]) -> None:
        self.left = list(services)

    async def open(self) -> FakeService:
        return self.left.pop(0)

    async def start(self) -> FakeService:
        return await start_service(self.open)


@pytest.mark.parametrize("error", [StoreError("no"), OSError(98, "taken")])
def test_a_start_that_fails_stops_what_was_opened(error: Exception) -> None:
    async def scenario() -> None:
        services = [FakeService(error), FakeService()]
        life = Life(services)
        with pytest.raises(type(error)):
            await life.start()
        assert (services[0].stopped, life.left) == (1, services[1:])

    asyncio.run(scenario())


def test_a_service_that_asks_for_it_is_opened_again_until_another_reason_ends_it() -> None:
    async def scenario() -> None:
        reason = StoreError("the disk failed")
        services = [FakeService(end=ReopenError("refilled")), FakeService(end=reason)]
        stop = StopSignal(asyncio.get_running_loop())
        assert await run_service(Life(services).start, stop) is reason
        assert [each.stopped for each in services] == [1, 1]

    asyncio.run(scenario())


@pytest.mark.parametrize("start", [None, "waits"])
def test_who_is_told_to_stop_stops_in_order_also_while_it_starts(start: str | None) -> None:
    async def scenario() -> None:
        service = FakeService(start)
        stop = StopSignal(asyncio.get_running_loop())
        asyncio.get_running_loop().call_soon(partial(stop.ask, at_once=False))
        assert await run_service(Life([service]).start, stop) is None
        assert service.stopped == 1

    asyncio.run(scenario())


async def running_with_clients() -> tuple[
    FakeService, StopSignal, asyncio.Task[BaseException | None]
]:
    """A service that drains until its clients have left."""
    service, stop = FakeService(), StopSignal(asyncio.get_running_loop())
    service.clients_left = asyncio.Event()
    running = asyncio.ensure_future(run_service(Life([service]).start, stop))
    await turns(10)
    return service, stop, running


async def test_a_service_drains_before_it_stops() -> None:
    service, stop, running = await running_with_clients()
    stop.ask(at_once=False)
    await turns(10)
    assert (service.drains, service.stopped) == (1, 0)
    assert service.clients_left is not None
    service.clients_left.set()
    assert await running is None
    assert service.stopped == 1


async def test_who_asks_a_second_time_ends_the_draining() -> None:
    service, stop, running = await running_with_clients()
    stop.ask(at_once=False)
    await turns(10)
    stop.ask(at_once=False)
    assert await running is None
    assert service.stopped == 1


async def test_who_asks_to_stop_at_once_does_not_wait_for_clients() -> None:
    service, stop, running = await running_with_clients()
    stop.ask(at_once=True)
    assert await running is None
    assert service.stopped == 1


async def test_a_service_that_fails_while_it_drains_says_why() -> None:
    service, stop, running = await running_with_clients()
    stop.ask(at_once=False)
    await turns(10)
    reason = StoreError("the disk failed")
    service.failed.set_result(reason)
    assert await running is reason
