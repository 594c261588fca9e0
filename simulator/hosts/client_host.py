"""The machine of a NameServer or of a client. Its disk does not matter."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING

from simulator.engine.machine_clock import MachineClock
from simulator.engine.process import Process
from simulator.engine.process_loop import ProcessLoop
from simulator.engine.tcp_sockets import Interface

if TYPE_CHECKING:
    from simulator.hosts.observed_host import Environment

Main = Callable[["ClientHost"], Coroutine[object, object, None]]


class ClientHost:
    """Runs ``main`` in a process of its own, each time that it is started.

    ``boot`` counts the processes; ``loop`` is that of the present one.
    """

    def __init__(
        self,
        name: str,
        ip: str,
        environment: Environment,
        main: Main,
        ended: Callable[[ClientHost], None] = lambda _client_host: None,
    ) -> None:
        """``ended`` is called for every process that ends too early."""
        self.name = name
        self.ip = ip
        self.boot = 0
        self.clock = MachineClock(environment.loop)
        self.loop: ProcessLoop
        self.process: Process | None = None
        self._environment = environment
        self._main = main
        self._ended = ended
        self._interface: Interface | None = None

    @property
    def true_time(self) -> float:
        """Virtual seconds, not those of its own clock."""
        return self._environment.loop.time()

    def note(self, text: str) -> None:
        """Adds an event to the trace."""
        self._environment.trace.note(self.name, text)

    def coverage_mark(self, name: str) -> None:
        """Counts a situation that runs should reach."""
        self._environment.trace.coverage_mark(name)

    def start(self) -> None:
        """Starts a process, unless one runs."""
        if self.process is not None:
            return
        self.boot += 1
        self.note("starts")
        process = self.process = Process(died=self.crash)
        self._interface = Interface(self._environment.sockets, process, self.name, self.ip)
        self.loop = ProcessLoop(
            self._environment.loop, process, interface=self._interface, rate=self.clock.rate
        )
        process.run(self._begin)

    def _begin(self) -> None:
        self.loop.create_task(self._main(self)).add_done_callback(lambda task: task.result())

    def crash(self) -> None:
        """The process dies at once."""
        if self.process is None or self._interface is None:
            return
        self.note("process dies")
        self.process.end()
        self.process = None
        self._environment.sockets.process_ended(self._interface, power_lost=False)
        self._ended(self)

    def pause(self) -> None:
        """Pauses its process until :meth:`resume`."""
        if self.process is not None:
            self.note("is paused")
            self.process.pause()

    def resume(self) -> None:
        """Lets its process run again."""
        if self.process is not None and self.process.paused:
            self.note("is resumed")
            self.process.resume()

    def switch_off(self) -> None:
        """Ends its process at the end of the simulation."""
        if self.process is not None:
            self.process.end()
