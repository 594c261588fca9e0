"""Disk work in virtual time: in order, as slow as the disk, lost with its process."""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from dledger.node.executor import Executors
from simulator.engine.disk import SimulatedFileSystem
from simulator.engine.disk_file import SimulatedFile
from simulator.engine.event_loop import VirtualLoop
from simulator.engine.process import Process

if TYPE_CHECKING:
    from simulator.engine.random_streams import Streams

T = TypeVar("T")

JOB_SECONDS = (0.0001, 0.002)
WAITS_CHANCE = 0.05
"""How often a begun write would have to wait, and must be repeated."""

REFUSED_CHANCE = 0.05
"""How often the disk refuses to begin such a write, like a system with a full queue."""

_Job: TypeAlias = tuple[
    float, float, Callable[[], Any], Callable[[Any, BaseException | None], None]
]
"""The time on a disk of usual speed, the share of it after which the work is done, the work, and
the callback."""

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})


class DiskOwner(Protocol):
    """The machine that a disk is in."""

    name: str
    fs: SimulatedFileSystem
    disk_slowness: float

    def coverage_mark(self, name: str) -> None:
        """Counts a situation that runs should reach."""


class SimulatedExecutor:
    """One lane of a process's disk work (see :class:`dledger.node.executor.Executor`).

    A job takes a while. At some time within it the work is done, all in one instant; at its end the
    completion is delivered. So the process may die before the work, after it and before anybody
    knows, or within it (a fault armed in the host's file system). The length of a job is decided
    when those before it are done: jobs that queued up at a slow disk go fast once it is fast again.
    """

    def __init__(self, loop: VirtualLoop, rng: Random, host: DiskOwner, process: Process) -> None:
        self._loop = loop
        self._rng = rng
        self._host = host
        self._process = process
        self._free_at = 0.0
        self._waiting: deque[_Job] = deque()
        self._busy = False
        self._under_way: Callable[[], Any] | None = None
        """The job in progress on the disk."""
        self._closed = False

    def submit(
        self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]
    ) -> None:
        """See :class:`dledger.node.executor.Executor`."""
        rng = self._rng
        self._waiting.append((rng.uniform(*JOB_SECONDS), rng.random(), work, done))
        if not self._busy:
            self._busy = True
            self._begin(max(self._loop.now, self._free_at))

    def _begin(self, began: float) -> None:
        usual_seconds, share, work, done = self._waiting.popleft()
        seconds = usual_seconds * self._host.disk_slowness
        self._free_at = began + seconds
        works_at = began + seconds * share
        self._under_way = work
        self._loop.at(works_at, self._process.run, self._work, work, done, self._free_at)

    def _work(
        self,
        work: Callable[[], Any],
        done: Callable[[Any, BaseException | None], None],
        ends_at: float,
    ) -> None:
        if self._closed:
            return
        self._under_way = None
        result: Any = None
        error: BaseException | None = None
        try:
            result = work()
        except Exception as raised:  # noqa: BLE001 - handed to `done`, which decides
            error = raised
        self._loop.at(ends_at, self._process.run, self._deliver, done, result, error)
        if self._waiting:
            self._begin(ends_at)
        else:
            self._busy = False

    def _deliver(
        self,
        done: Callable[[Any, BaseException | None], None],
        result: Any,
        error: BaseException | None,
    ) -> None:
        if not self._closed:
            done(result, error)

    def close(self) -> None:
        """See :class:`dledger.node.executor.Executor`. It takes no time: the loop waits for it."""
        self._closed = True
        if self._under_way is not None:
            self._finish(self._under_way)
        for _seconds, _share, work, _done in self._waiting:
            self._finish(work)
        self._waiting.clear()

    def _finish(self, work: Callable[[], Any]) -> None:
        with suppress(Exception):  # without a completion
            work()


class ImmediateExecutor:
    """Work that is done in the moment of its submission: the opening of data, before which nothing
    of a process can happen."""

    def submit(
        self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]
    ) -> None:
        """See :class:`dledger.node.executor.Executor`."""
        result: T | None = None
        error: BaseException | None = None
        try:
            result = work()
        except Exception as raised:  # noqa: BLE001 - handed to `done`, which decides
            error = raised
        done(result, error)

    def close(self) -> None:
        """See :class:`dledger.node.executor.Executor`."""


class SimulatedAsyncWriter:
    """Asynchronous writes; see :mod:`store.io.async_io`.

    They have a lane of their own. The log lane may be at work at the same time, and must then leave
    the end of the log alone.
    """

    def __init__(self, lane: SimulatedExecutor, rng: Random, mark: Callable[[str], None]) -> None:
        self._lane = lane
        self._rng = rng
        self._coverage_mark = mark

    def begin(
        self,
        file: SimulatedFile,
        data: bytes,
        position: int,
        then: Callable[[OSError | None], None],
    ) -> bool:
        """See :meth:`~store.io.filesystem.File.begin_append`."""
        if self._rng.random() < REFUSED_CHANCE:
            self._coverage_mark("write that the disk did not begin")
            return False
        self._lane.submit(partial(self._write, file, data, position), partial(_tell, then))
        return True

    def _write(self, file: SimulatedFile, data: bytes, position: int) -> None:
        if self._rng.random() < WAITS_CHANCE:
            self._coverage_mark("write that nobody waited for had to wait")
            written = self._rng.randrange(len(data) + 1)
            file.pwrite(data[:written], position)
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), file.path)
        file.append_direct(data, position)
        file.datasync()


def _tell(
    then: Callable[[OSError | None], None], _result: None, error: BaseException | None
) -> None:
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        error = BlockingIOError(errno.EAGAIN, str(error))  # ``then`` gets the error
    assert error is None or isinstance(error, OSError)  # noqa: S101 - of a disk nothing else comes
    then(error)


def executors_of(
    host: DiskOwner, process: Process, loop: VirtualLoop, streams: Streams
) -> tuple[Executors, Callable[[], None]]:
    """The lanes of a process's disk work, and the end of its writes in progress.

    Those have a lane of their own.
    """
    disk_times = streams.stream(f"disk times of {host.name}")
    log, reads, background, begun = (
        SimulatedExecutor(loop, disk_times, host, process) for _ in range(4)
    )
    writes = streams.stream(f"writes of {host.name}")
    host.fs.writes = SimulatedAsyncWriter(begun, writes, host.coverage_mark)
    return Executors(log, reads, background), begun.close
