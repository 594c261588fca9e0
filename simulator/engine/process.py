"""One process of a node, from its start to its end.

All events of a node pass through :meth:`Process.run`: its timers, its completed disk work, frames
and link changes of its transport, and requests of its clients. So events of a dead process are
dropped, and those of a paused one wait, in order.
"""

from __future__ import annotations

import asyncio
import inspect
from asyncio.events import AbstractEventLoop, _set_running_loop
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVarTuple, Unpack

from simulator.engine.disk import PowerLossError

Ts = TypeVarTuple("Ts")


class Running:
    """Tells asyncio which loop is running, for all processes of a cluster.

    It changes only when the code of another process begins to run, because telling asyncio costs a
    system call.
    """

    __slots__ = ("inside", "told")

    def __init__(self) -> None:
        self.inside: AbstractEventLoop | None = None
        """The loop of the present event."""
        self.told: AbstractEventLoop | None = None
        """The loop that asyncio finds."""

    def enter(self, loop: AbstractEventLoop) -> AbstractEventLoop | None:
        """An event of this loop begins. Returns the loop of the outer event, if there is one."""
        outside, self.inside = self.inside, loop
        if self.told is not loop:
            self.told = loop
            _set_running_loop(loop)
        return outside

    def leave(self, outside: AbstractEventLoop | None) -> None:
        """The event ends."""
        self.inside = outside
        if outside is not None and self.told is not outside:
            self.told = outside
            _set_running_loop(outside)

    def forget(self) -> None:
        """Asyncio has another loop now."""
        self.told = None


class Process:
    """See the module. ``after``, if given, is called after each event; ``died`` if one ends the
    process.

    ``loop`` is the loop that the code of the process finds running. So everything that it makes
    there (a sleep, a future, a task) is an event of this process too.
    """

    __slots__ = ("_after", "_died", "_running", "_runs", "_waiting", "alive", "loop", "paused")

    def __init__(
        self, *, died: Callable[[], None], after: Callable[[], None] | None = None
    ) -> None:
        self.alive = True
        self.paused = False
        self._runs = True
        self.loop: AbstractEventLoop | None = None
        self._running: Running | None = None
        self._after = after
        self._died = died
        self._waiting: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()

    def run(self, callback: Callable[[Unpack[Ts]], object], *args: *Ts) -> None:
        """Runs an event of this process: now, when it is resumed, or never."""
        if not self._runs:
            if self.alive:
                self._waiting.append((callback, args))
            return
        running, loop, outside = self._running, self.loop, None
        if running is not None and loop is not None:
            # As Running.enter and leave, without the calls: everything comes through here.
            outside, running.inside = running.inside, loop
            if running.told is not loop:
                running.told = loop
                _set_running_loop(loop)
        dies = False
        try:
            callback(*args)
        except PowerLossError:
            dies = True
        finally:
            if running is not None:
                running.inside = outside
                if outside is not None and running.told is not outside:
                    running.leave(outside)
        if dies:
            self._died()
        elif self._after is not None:
            self._after()

    def runs_on(self, loop: AbstractEventLoop, running: Running) -> None:
        """From the next event on, its code runs on this loop."""
        self.loop, self._running = loop, running

    def pause(self) -> None:
        """Pauses it, as SIGSTOP or a long garbage collection: time passes, but no event runs."""
        self.paused = True
        self._runs = False

    def resume(self) -> None:
        """Runs the events of the pause, all in one instant."""
        self.paused = False
        self._runs = self.alive
        waiting, self._waiting = self._waiting, deque()
        for callback, args in waiting:
            self.run(callback, *args)

    def end(self) -> None:
        """Ends it: no event runs from now on."""
        self.alive = self._runs = False
        self._waiting.clear()
        if self.loop is not None:
            _close_unstarted(self.loop)


def _close_unstarted(loop: AbstractEventLoop) -> None:
    """Closes coroutines of tasks that never started, so that Python does not warn of them."""
    for task in asyncio.all_tasks(loop):
        coroutine = task.get_coro()
        if (
            inspect.iscoroutine(coroutine)
            and inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED
        ):
            coroutine.close()
