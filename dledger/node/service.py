"""The life of a process around a replica: opened, run, and opened again where that is needed.

A node stops by itself where its directory must be opened anew
(:class:`~dledger.errors.ReopenError`), and its start may meet damage that peers can put right
before the next one. The simulator runs its nodes and brokers by these functions too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from dledger.errors import ReopenError
from store.errors import DamagedLogError, StoreError

log = logging.getLogger(__name__)


class Service(Protocol):
    """What runs on an open replica."""

    @property
    def failed(self) -> asyncio.Future[BaseException]:
        """Done, with the reason, when the service stopped by itself."""

    async def start(self) -> None:
        """Recovers the state and joins the group. Raises ``StoreError`` and ``OSError``."""

    async def stop(self) -> None:
        """Leaves the group and closes the replica, whether it was started or has failed."""


S = TypeVar("S", bound=Service)


async def start_service(open_service: Callable[[], Coroutine[Any, Any, S]], *, alone: bool) -> S:
    """Opens a service and starts it.

    Opens it again where its start finds the log damaged: opening has peers put that right, unless
    the node is ``alone``. Raises what opening and starting raise; nothing keeps running then.
    """
    while True:
        service = await open_service()
        try:
            await service.start()
        except DamagedLogError as error:
            await service.stop()
            if alone:
                raise
            log.error("%s; the log is opened again, to be repaired", error)
        except (OSError, StoreError, asyncio.CancelledError):
            await service.stop()
            raise
        else:
            return service


async def run_service(
    start: Callable[[], Coroutine[Any, Any, S]], stopped: asyncio.Future[None]
) -> BaseException | None:
    """Runs what ``start`` gives until ``stopped`` is done, and then stops it in order.

    Where it stopped by itself to be opened anew, it is started anew. Returns the reason if it
    stopped by itself for any other, and None if it was told to stop. Raises what ``start`` raises.
    """
    while True:
        starting = asyncio.ensure_future(start())
        await asyncio.wait((stopped, starting), return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            await asyncio.wait((starting,))
            return None
        service = starting.result()
        await asyncio.wait((stopped, service.failed), return_when=asyncio.FIRST_COMPLETED)
        await service.stop()
        reason = service.failed.result() if service.failed.done() else None
        if not isinstance(reason, ReopenError) or stopped.done():
            return reason
