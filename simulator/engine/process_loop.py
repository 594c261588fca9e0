"""The event loop as one simulated process sees it: its timers, its tasks and its connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from heapq import heappush
from math import inf, nextafter
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, Unpack

from simulator.engine.event_loop import (
    NEVER_CANCELLED,
    ReadyHandle,
    ScheduledHandle,
    SpinningError,
    VirtualLoop,
)

if TYPE_CHECKING:
    from simulator.engine.process import Process
    from simulator.engine.tcp_sockets import Factory, Interface, Listener

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


TIMERS_MAX = 300
"""Timers of a process that ring in one second. The busiest second of a hundred runs had 70; a wait
that ends too early and begins again each millisecond has a thousand."""


class ProcessLoop(VirtualLoop):
    """The loop as one process sees it: its callbacks are events of that process.

    It has what the shipped code uses: timers, callbacks, futures, tasks and, with an
    ``interface``, connections. Nothing runs on it: it hands on to the loop of the whole cluster.
    Its clock runs at ``rate`` seconds a second.
    """

    def __init__(
        self,
        loop: VirtualLoop,
        process: Process,
        *,
        interface: Interface | None = None,
        rate: float = 1.0,
    ) -> None:
        super().__init__()
        self.close()
        self._loop = loop
        self._process = process
        self._interface = interface
        self._rate = rate
        self._run = process.run
        self._second, self._rung = 0, 0
        """The second of the cluster's time in which a timer last rang, and how many did in it."""
        self._soon = loop._ready.append
        process.runs_on(self, loop.running)

    def time(self) -> float:
        """See :class:`VirtualLoop`."""
        return self._loop.now * self._rate

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """See :class:`asyncio.AbstractEventLoop`."""
        if self._rate != 1.0:
            asked, when = when, when / self._rate
            while (
                when * self._rate < asked
            ):  # otherwise the timer would fire slightly too early, again and again
                when = nextafter(when, inf)
        del context
        loop = self._loop
        timer = ScheduledHandle(when, self._ring, (callback, *args))
        heappush(loop._timers, (when, next(loop._order), timer))
        return timer

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """See :class:`asyncio.AbstractEventLoop`."""
        loop = self._loop
        if self._rate != 1.0:
            when = loop.now * self._rate + delay
            return self.call_at(when, callback, *args, context=context)
        when = loop.now + delay
        timer = ScheduledHandle(when, self._ring, (callback, *args))
        heappush(loop._timers, (when, next(loop._order), timer))
        return timer

    def _ring(self, callback: Callable[..., object], *args: object) -> None:
        """Runs what a timer is for. Raises :class:`SpinningError`."""
        second = int(self._loop.now)
        if second != self._second:
            self._second, self._rung = second, 0
        self._rung += 1
        if self._rung > TIMERS_MAX:
            what = f"a process has more than {TIMERS_MAX} timers in second {second}: {callback}"
            raise SpinningError(what)
        self._take_turn(callback, *args)

    def _take_turn(self, callback: Callable[..., object], *args: object) -> None:
        """Runs what a handle is for. If the process is paused, an event that runs before may cancel
        it."""
        if self._process.paused:
            self._run(self._unless_cancelled, self._loop.handle, callback, args)
        else:
            self._run(callback, *args)

    def _unless_cancelled(
        self, handle: asyncio.Handle, callback: Callable[..., object], args: tuple[object, ...]
    ) -> None:
        if not handle.cancelled():
            callback(*args)

    def call_soon(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """See :class:`asyncio.AbstractEventLoop`."""
        if context is not None:
            # Futures and tasks name a context, and ask for no handle.
            self._soon((self._run, (callback, *args)))
            return NEVER_CANCELLED
        ready = ReadyHandle(self._take_turn, (callback, *args))
        self._soon(ready)
        return ready

    def call_soon_threadsafe(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """See :class:`asyncio.AbstractEventLoop`; there is one thread."""
        return self.call_soon(callback, *args, context=context)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        """See :class:`asyncio.AbstractEventLoop`."""
        return asyncio.Task(
            coro, loop=self, name=None if name is None else str(name), context=context
        )

    # The simulated network has only these of asyncio's arguments.
    async def create_connection(  # type: ignore[override]  # of its overloads one is used
        self, protocol_factory: Factory, host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """See :class:`asyncio.AbstractEventLoop`."""
        assert self._interface is not None  # noqa: S101 - a process without a network dials nobody
        return await self._interface.connect(protocol_factory, host, port)

    async def create_server(  # type: ignore[override]  # of its overloads one is used
        self, protocol_factory: Factory, host: str, port: int, *, backlog: int
    ) -> Listener:
        """See :class:`asyncio.AbstractEventLoop`; no ``backlog`` is ever full."""
        del backlog
        assert self._interface is not None  # noqa: S101 - as above
        return self._interface.listen(protocol_factory, host, port)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """See :class:`asyncio.AbstractEventLoop`. Errors of a dead process are ignored."""
        if self._process.alive:
            self._loop.call_exception_handler(context)
