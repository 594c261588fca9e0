"""The life of a replica's process: the replica is opened, run, and opened again if needed.

A node stops by itself if its directory must be opened again
(:class:`~dledger.errors.ReopenError`). The simulator runs its nodes and brokers by these functions
too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from dledger.errors import ReopenError
from store.errors import StoreError


class Service(Protocol):
    """What runs on an open replica."""

    @property
    def failed(self) -> asyncio.Future[BaseException]:
        """Done, with the reason, when the service stopped by itself."""

    async def start(self) -> None:
        """Recovers the state and joins the group. Raises ``StoreError`` and ``OSError``."""

    async def drain(self) -> None:
        """Hands over the leadership, and goes on until no client depends on this node."""

    async def stop(self) -> None:
        """Leaves the group and closes the replica, whether it was started or has failed."""


class StopSignal:
    """Asks a service to stop. ``asked`` is done at the first request. ``at_once`` is done if the
    service must not drain, or must stop draining."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.asked: asyncio.Future[None] = loop.create_future()
        self.at_once: asyncio.Future[None] = loop.create_future()

    def ask(self, *, at_once: bool) -> None:
        """A second request means: stop at once."""
        for future in (self.at_once,) if self.asked.done() else (self.asked,):
            if not future.done():
                future.set_result(None)
        if at_once and not self.at_once.done():
            self.at_once.set_result(None)


S = TypeVar("S", bound=Service)


async def start_service(open_service: Callable[[], Coroutine[Any, Any, S]]) -> S:
    """Opens a service and starts it.

    Raises what opening and starting raise; nothing keeps running then.
    """
    service = await open_service()
    try:
        await service.start()
    except (OSError, StoreError, asyncio.CancelledError):
        await service.stop()
        raise
    return service


async def run_service(
    start: Callable[[], Coroutine[Any, Any, S]], stop: StopSignal
) -> BaseException | None:
    """Runs what ``start`` gives until it is asked to ``stop``; then the service drains and is
    stopped. If it stops by itself to be opened again, it is started again. If it stops by itself
    for another reason, that is returned; None if it was told to stop. Raises what ``start`` raises.
    """
    while True:
        starting = asyncio.ensure_future(start())
        await asyncio.wait((stop.asked, starting), return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            await asyncio.wait((starting,))
            return None
        service = starting.result()
        await asyncio.wait((stop.asked, service.failed), return_when=asyncio.FIRST_COMPLETED)
        if not service.failed.done():
            draining = asyncio.ensure_future(service.drain())
            ends = (draining, stop.at_once, service.failed)
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            draining.cancel()
        await service.stop()
        reason = service.failed.result() if service.failed.done() else None
        if not isinstance(reason, ReopenError) or stop.asked.done():
            return reason
