"""An asyncio event loop whose time jumps to the next timer instead of waiting for it.

No thread, no socket, no wall clock: what runs in it is a function of the seed. Callbacks of one
instant run in the order in which they were scheduled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any, TypeVarTuple, Unpack

Ts = TypeVarTuple("Ts")


class StalledError(Exception):
    """Nothing is scheduled any more, and what was waited for has not happened."""


class VirtualLoop(asyncio.BaseEventLoop):
    """A loop under virtual time, in seconds from 0."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._selector = self  # asked by the base class to wait for events
        self._clock_resolution = 1e-9

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now

    def select(self, timeout: float | None) -> list[Any]:
        """Instead of waiting, lets the time pass."""
        if timeout is None:
            raise StalledError(f"nothing is left to happen after {self._now:.6f} s")
        if timeout > 0:
            self._now += timeout
        return []

    def _process_events(self, event_list: list[Any]) -> None:
        """There are none: nothing outside the loop exists."""

    def _write_to_self(self) -> None:
        """Nobody waits in a system call to be woken."""


class ProcessLoop(VirtualLoop):
    """The loop as one process of a simulated host sees it: its callbacks die with it."""

    def __init__(self, loop: VirtualLoop, alive: Callable[[], bool]) -> None:
        super().__init__()
        self.close()  # nothing ever runs on this one: it only hands callbacks on
        self._loop = loop
        self._alive = alive

    def time(self) -> float:
        """See :class:`VirtualLoop`."""
        return self._loop.time()

    def _run_if_alive(self, callback: Callable[[Unpack[Ts]], object], *args: *Ts) -> None:
        if self._alive():
            callback(*args)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """See :class:`asyncio.AbstractEventLoop`."""
        return self._loop.call_at(when, self._run_if_alive, callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """See :class:`asyncio.AbstractEventLoop`."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_soon(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """See :class:`asyncio.AbstractEventLoop`."""
        return self._loop.call_soon(self._run_if_alive, callback, *args, context=context)
