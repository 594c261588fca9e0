"""One life of a node's process, from its start to its end: it runs, it is stopped, it dies.

Everything that happens to a node passes through :meth:`Process.run`: its timers, its completed
disk work, the frames and link changes of its transport, and what its clients ask. So what belongs
to a dead process is dropped, and what happens to a stopped one waits, in order.
"""

from __future__ import annotations

from asyncio.events import AbstractEventLoop, _get_running_loop, _set_running_loop
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVarTuple, Unpack

from simulator.disk import PowerLossError

Ts = TypeVarTuple("Ts")


class Process:
    """See the module. ``after``, if given, is called after each event; ``died`` if one ends the
    process.

    ``loop`` is the loop that the code of the process finds running, so that whatever it makes
    there (a sleep, a future, a task) is an event of this process too.
    """

    __slots__ = ("_after", "_died", "_runs", "_waiting", "alive", "loop", "paused")

    def __init__(
        self, *, died: Callable[[], None], after: Callable[[], None] | None = None
    ) -> None:
        self.alive = True
        self.paused = False
        self._runs = True
        self.loop: AbstractEventLoop | None = None
        self._after = after
        self._died = died
        self._waiting: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()

    def run(self, callback: Callable[[Unpack[Ts]], object], *args: *Ts) -> None:
        """One event of this process: now, once it is resumed, or never."""
        if not self._runs:
            if self.alive:
                self._waiting.append((callback, args))
            return
        outside = _get_running_loop()
        _set_running_loop(self.loop or outside)
        dies = False
        try:
            callback(*args)
        except PowerLossError:
            dies = True
        finally:
            _set_running_loop(outside)
        if dies:
            self._died()
        elif self._after is not None:
            self._after()

    def pause(self) -> None:
        """As SIGSTOP, or a long garbage collection: time passes, and nothing happens."""
        self.paused = True
        self._runs = False

    def resume(self) -> None:
        """What happened meanwhile happens to it now, in one instant."""
        self.paused = False
        self._runs = self.alive
        waiting, self._waiting = self._waiting, deque()
        for callback, args in waiting:
            self.run(callback, *args)

    def end(self) -> None:
        """Nothing runs from now on."""
        self.alive = self._runs = False
        self._waiting.clear()
