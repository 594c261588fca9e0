"""Blocking disk work, off the event loop and in order.

The simulator replaces executors by some that run the work in virtual time, or at once.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar, cast

T = TypeVar("T")
_Done = Callable[[Any, BaseException | None], None]


class Executor(Protocol):
    """Runs jobs one at a time, in the order in which they were submitted."""

    def submit(
        self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]
    ) -> None:
        """Runs ``work``; then, on the loop, ``done(result, None)`` or ``done(None, error)``."""

    def close(self) -> None:
        """Finishes what was submitted and stops. Completions after this are dropped."""


class Executors(NamedTuple):
    """The three lanes of disk work of a node."""

    log: Executor
    reads: Executor
    background: Executor

    def close(self) -> None:
        """Closes all of them."""
        for executor in (self.log, self.reads, self.background):
            executor.close()


class StoppedError(Exception):
    """Ends blocking work whose result nobody wants any more."""


async def result_of(executor: Executor, work: Callable[[Callable[[], None]], T]) -> T:
    """The result of ``work(go_on)``, which is done in a lane while the loop turns.

    The work calls ``go_on`` often. Once the caller is cancelled, that raises :class:`StoppedError`.
    The cancellation goes on only when the work has ended: whoever closes files next has them for
    himself. Raises what the work raises.
    """
    stops = threading.Event()
    outcome: list[tuple[T | None, BaseException | None]] = []
    ended: asyncio.Future[None] | None = None

    def go_on() -> None:
        if stops.is_set():
            raise StoppedError

    def done(result: T | None, error: BaseException | None) -> None:
        outcome.append((result, error))
        if ended is not None:
            ended.set_result(None)

    executor.submit(lambda: work(go_on), done)
    cancelled: asyncio.CancelledError | None = None
    if not outcome:
        ended = asyncio.get_running_loop().create_future()
        while not ended.done():
            try:
                await asyncio.wait((ended,))
            except asyncio.CancelledError as error:
                stops.set()
                cancelled = error
    if cancelled is not None:
        raise cancelled
    [(result, failure)] = outcome
    if failure is not None:
        raise failure
    return cast("T", result)


class ThreadExecutor:
    """One thread and a queue; cheaper than a pool's futures, and ordered by construction."""

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str) -> None:
        self._loop = loop
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], _Done] | None] = queue.SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(
        self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]
    ) -> None:
        """See :class:`Executor`."""
        self._jobs.put((work, done))

    def _deliver(self, done: _Done, result: Any, error: BaseException | None) -> None:
        if not self._closed:
            done(result, error)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            work, done = job
            result: Any = None
            error: BaseException | None = None
            try:
                result = work()
            except BaseException as raised:  # noqa: BLE001 - handed to `done`, which decides
                error = raised
            if not self._closed:
                self._loop.call_soon_threadsafe(self._deliver, done, result, error)
            # Frees what the job held before the next one comes.
            del job, work, done, result, error

    def close(self) -> None:
        """See :class:`Executor`."""
        self._closed = True
        self._jobs.put(None)
        self._thread.join()
