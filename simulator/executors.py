"""Disk work at a virtual time: in order, as slow as the disk is, and gone when the host dies."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, TypeVar

from simulator.disk import PowerLossError

if TYPE_CHECKING:
    from simulator.host import Host
    from simulator.loop import VirtualLoop

T = TypeVar("T")


class SimulatedExecutor:
    """One lane of a host's disk work (see :class:`dledger.executor.Executor`).

    The work happens at one instant and its completion is delivered at a later one, so that the
    host may die before, within (a fault armed in its file system) or between.
    """

    def __init__(self, loop: VirtualLoop, rng: Random, host: Host) -> None:
        self._loop = loop
        self._rng = rng
        self._host = host
        self._boot = host.boot
        self._free_at = 0.0

    def submit(
        self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]
    ) -> None:
        """See :class:`dledger.executor.Executor`."""
        seconds = self._rng.uniform(0.0001, 0.002) * self._host.disk_slowness
        self._free_at = max(self._free_at, self._loop.time()) + seconds
        self._loop.call_at(self._free_at, self._run, work, done)

    def _run(
        self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]
    ) -> None:
        if self._host.boot != self._boot:
            return
        result: T | None = None
        error: BaseException | None = None
        try:
            result = work()
        except PowerLossError:
            self._host.power_failed()
            return
        except Exception as raised:  # noqa: BLE001 - handed to `done`, which decides
            error = raised
        self._free_at = max(self._free_at, self._loop.time() + 0.00001)
        self._loop.call_at(self._loop.time() + 0.00001, self._deliver, done, result, error)

    def _deliver(
        self,
        done: Callable[[T | None, BaseException | None], None],
        result: T | None,
        error: BaseException | None,
    ) -> None:
        if self._host.boot == self._boot:
            done(result, error)
            self._host.stepped()

    def close(self) -> None:
        """Nothing to stop."""
