"""An asyncio event loop whose time jumps to the next timer instead of waiting for it.

No thread, no socket, no wall clock: everything in it is a function of the seed. Callbacks of one
instant run in the order in which they were scheduled.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context
from heapq import heappop, heappush
from itertools import count
from types import AsyncGeneratorType
from typing import Any, TypeAlias, TypeVarTuple, Unpack

from simulator.engine.process import Running

Ts = TypeVarTuple("Ts")


class StalledError(Exception):
    """Nothing is scheduled, and the awaited event has not happened."""


class SpinningError(Exception):
    """Code runs on and on while no time passes, or hardly any: on a real clock it would use a whole
    processor."""


TURNS_MAX = 20_000
"""The most turns of the loop within one instant."""


_Event: TypeAlias = tuple[Callable[..., object], tuple[Any, ...]]


class ReadyHandle(asyncio.Handle):
    """A callback to run. It copies no context, because no code here uses one."""

    __slots__ = ()

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._callback = callback
        self._args = args
        self._cancelled = False

    def __repr__(self) -> str:
        return f"{self._callback}"

    def cancel(self) -> None:
        """See :class:`asyncio.Handle`."""
        self._cancelled = True


NEVER_CANCELLED = ReadyHandle(bool, ())
"""The handle of asyncio's own callbacks, which asyncio never uses."""


class ScheduledHandle(asyncio.TimerHandle):
    """As :class:`ReadyHandle`, for a time."""

    __slots__ = ()

    def __init__(self, when: float, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._when = when
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._source_traceback = None

    def __repr__(self) -> str:
        return f"{self._callback} at {self._when:.6f} s"

    def cancel(self) -> None:
        """See :class:`asyncio.TimerHandle`."""
        self._cancelled = True


class VirtualLoop(asyncio.BaseEventLoop):
    """A loop under virtual time, in seconds from 0.

    It has a heap of its own, because the base class leaves the order of two timers of one instant
    open.
    """

    _ready: deque[asyncio.Handle | _Event]  # of the base class, which adds to it in ``call_soon``
    _stopping: bool  # as above
    _check_closed: Callable[[], None]  # as above

    get_debug = staticmethod(bool)  # never; asked for each future, and cheaper than a function

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        """The value of :meth:`time`, without the cost of a call."""
        self._turns = 0
        self._timers: list[tuple[float, int, asyncio.TimerHandle | _Event]] = []
        self._order = count()
        self.handle: asyncio.Handle = NEVER_CANCELLED
        """The one that runs, within the callback of a handle."""
        self.running = Running()

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self.now

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """See :class:`asyncio.AbstractEventLoop`."""
        del context
        timer = ScheduledHandle(when, self._run_own, (callback, *args))
        heappush(self._timers, (when, next(self._order), timer))
        return timer

    def call_soon(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """See :class:`asyncio.AbstractEventLoop`."""
        del context
        self._check_closed()
        ready = ReadyHandle(self._run_own, (callback, *args))
        self._ready.append(ready)
        return ready

    def _run_own(self, callback: Callable[..., object], *args: object) -> None:
        outside = self.running.enter(self)
        try:
            callback(*args)
        finally:
            self.running.leave(outside)

    def soon(self, callback: Callable[[Unpack[Ts]], object], *args: *Ts) -> None:
        """As :meth:`call_soon`, for callbacks that are never cancelled and do not ask for the
        running loop."""
        self._ready.append((callback, args))

    def at(self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts) -> None:
        """As :meth:`call_at`, for callbacks that are never cancelled and do not ask for the running
        loop."""
        heappush(self._timers, (when, next(self._order), (callback, args)))

    def after(self, delay: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts) -> None:
        """As :meth:`at`, this number of seconds from now."""
        heappush(self._timers, (self.now + delay, next(self._order), (callback, args)))

    def _run_once(self) -> None:
        """Turns until somebody stops it. Each turn runs the ready events, or else the nearest
        timers of one instant."""
        ready = self._ready
        take = ready.popleft
        self.running.forget()
        while True:
            if ready or self._stopping:
                events = [take() for _ in range(len(ready))]
            else:
                events = [self._next_event()]  # what is of the same instant comes right after it
            self._turns += 1
            if self._turns > TURNS_MAX:
                raise SpinningError(f"{TURNS_MAX} turns at {self.now:.6f} s: {events[0]}")
            for event in events:
                if type(event) is tuple:
                    callback, args = event
                # An event is a tuple or a handle; mypy cannot tell them apart by `type() is`.
                elif event._cancelled:  # type: ignore[union-attr]  # see above
                    continue
                else:
                    self.handle = event  # type: ignore[assignment]  # see above
                    callback, args = event._callback, event._args  # type: ignore[union-attr, assignment]  # see above
                try:
                    callback(*args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:  # noqa: BLE001 - as asyncio's handles do
                    self.call_exception_handler({"message": str(callback), "exception": error})
            if self._stopping:
                return

    def _next_event(self) -> asyncio.Handle | _Event:
        """Lets time pass to the next event; others of that instant are ready then."""
        timers = self._timers
        while timers:
            when, _, event = heappop(timers)
            # mypy does not take the other kind out of the union by that.
            if type(event) is tuple or not event._cancelled:  # type: ignore[union-attr]  # see above
                break
        else:
            raise StalledError(f"nothing is left to happen after {self.now:.6f} s")
        now = self.now
        if when > now:
            self.now = now = when
            self._turns = 0
        while timers and timers[0][0] <= now:
            self._ready.append(heappop(timers)[2])
        return event

    def _asyncgen_finalizer_hook(self, agen: AsyncGeneratorType[Any, Any]) -> None:
        """Does nothing: a generator that still waits belongs to a dead process."""
        if not agen.ag_running:
            super()._asyncgen_finalizer_hook(agen)  # type: ignore[misc]  # typeshed does not list it

    def _write_to_self(self) -> None:
        """Does nothing: no thread waits in a system call."""
