"""Bare synced writes beside a load: how long the disk alone takes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

from broker.bench.results import DiskLatencies, SteadyRound
from store.io.os_filesystem import OsFileSystem

WRITE_SIZE = 4096
WRITES_IN_FILE = 256
EVERY_SECONDS = 0.01
"""So few small writes do not slow down the load."""


class DiskProbe:
    """Writes a block from a thread, synced, a hundred times a second, until the context ends.

    All replicas of a machine share its disk. If that stands still, each message waits, and so do
    these writes: like the messages, a latency counts from when the write was due. The file is
    removed at the end.
    """

    def __init__(self, directory: Path, clock: Callable[[], float] = time.perf_counter) -> None:
        """``directory`` is on the disk of the load. Raises :class:`OSError`."""
        self._clock = clock
        self._fs = OsFileSystem()
        self._path = str(directory / "disk-probe")
        self._file = self._fs.open(self._path, create=True)
        self._file.append_direct(bytes(WRITES_IN_FILE * WRITE_SIZE), 0)  # later writes overwrite
        self._file.datasync()
        self._stopped = threading.Event()
        self._failure: OSError | None = None
        self._written: list[tuple[float, float]] = []
        """Of each write the time at which it was due, and its latency in seconds."""
        self._thread = threading.Thread(target=self._run, name="disk-probe", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        self._file.close()
        with suppress(FileNotFoundError):
            self._fs.remove(self._path)

    def latencies(self, load: SteadyRound) -> DiskLatencies | None:
        """Those of the writes that were due in that round; ``None`` if none was.

        Raises the :class:`OSError` that ended the writing.
        """
        if self._failure is not None:
            raise self._failure
        end = load.began_at + load.seconds
        due = [took for at, took in self._written if load.began_at <= at < end]
        return DiskLatencies.of(due) if due else None

    def write(self, due: float) -> None:
        """One write. All that were due since then count as if they had ended with it. Raises
        :class:`OSError`."""
        position = len(self._written) % WRITES_IN_FILE * WRITE_SIZE
        self._file.append_direct(bytes(WRITE_SIZE), position)
        self._file.datasync()
        ended = self._clock()
        while due <= ended:
            self._written.append((due, ended - due))
            due += EVERY_SECONDS

    def _run(self) -> None:
        due = self._clock()
        try:
            while not self._stopped.wait(max(0.0, due - self._clock())):
                self.write(due)
                due = self._written[-1][0] + EVERY_SECONDS
        except OSError as error:
            self._failure = error
