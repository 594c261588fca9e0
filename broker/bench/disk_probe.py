"""Bare synced writes beside a load: how long the disk alone takes."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

from broker.bench.results import DiskLatencies, SteadyRound
from store.io.os_filesystem import OsFileSystem

WRITE_SIZE = 4096
WRITES_IN_FILE = 256
PAUSE_SECONDS = 0.01
"""So few small writes do not slow down the load."""


class DiskProbe:
    """Writes a block from a thread, synced, a hundred times a second, until the context ends.

    All replicas of a machine share its disk. If that stands still, each message waits, and so does
    the write that comes meanwhile. The file is removed at the end.
    """

    def __init__(self, directory: Path) -> None:
        """``directory`` is on the disk of the load. Raises :class:`OSError`."""
        self._fs = OsFileSystem()
        self._path = str(directory / "disk-probe")
        self._file = self._fs.open(self._path, create=True)
        self._stopped = threading.Event()
        self._writes: list[tuple[float, float]] = []
        """Of each write the time at which it began, and its seconds."""
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

    def latencies(self, load: SteadyRound) -> DiskLatencies:
        """The latencies of the writes that began in that round."""
        end = load.began_at + load.seconds
        return DiskLatencies.of([took for at, took in self._writes if load.began_at <= at < end])

    def write(self) -> None:
        """One write. Raises :class:`OSError`."""
        position = len(self._writes) % WRITES_IN_FILE * WRITE_SIZE
        began = time.perf_counter()
        self._file.append_direct(bytes(WRITE_SIZE), position)
        self._file.datasync()
        self._writes.append((began, time.perf_counter() - began))

    def _run(self) -> None:
        while not self._stopped.wait(PAUSE_SECONDS):
            self.write()
