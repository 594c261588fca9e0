"""With asynchronous flush: which entries may be called synced, when some are cut meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

from dledger.effects import Write
from dledger.logwriter import LogWriter
from simulator.disk import SimulatedFileSystem
from store.entry import Entry, EntryKind, build_entry
from store.replica import ReplicaStore, StoreConfig

T = TypeVar("T")


class HandExecutor:
    """Does a job when the test says so."""

    def __init__(self) -> None:
        self._jobs: list[tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]] = []

    def submit(
        self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]
    ) -> None:
        self._jobs.append((work, done))

    def work(self, jobs: int) -> None:
        for _ in range(jobs):
            work, done = self._jobs.pop(0)
            done(work(), None)

    def close(self) -> None:
        """Nothing to stop."""


class Disk:
    """A log writer on a simulated disk."""

    def __init__(self) -> None:
        fs = SimulatedFileSystem(Random(1))
        config = StoreConfig("g", "n0", 1 << 16, min_free_bytes=0)
        self.store = ReplicaStore.open(fs, "/data", config)
        self.executor = HandExecutor()
        self.writer = LogWriter(
            store=self.store,
            executor=self.executor,
            sync_flush=False,
            written=lambda _writes: None,
            failed=self._failed,
        )
        self._writes = 0
        self._entries: list[Entry] = []

    def _failed(self, error: BaseException) -> None:
        raise error

    def add(self, count: int, term: int, *, truncate_from: int | None = None) -> None:
        """Hands the writer ``count`` entries, after a cut if one is asked for."""
        self._writes += 1
        if truncate_from is not None:
            del self._entries[truncate_from:]
        write = Write(self._writes, hard_state=(term, ""), truncate_from=truncate_from)
        for _ in range(count):
            last = self._entries[-1] if self._entries else None
            self._entries.append(
                build_entry(
                    EntryKind.DATA,
                    0 if last is None else last.index + 1,
                    term,
                    0 if last is None else last.end,
                    0 if last is None else last.chain_crc,
                    [f"of term {term}".encode()],
                )
            )
            write.entries.append(self._entries[-1])
        self.writer.add(write)


def test_a_sync_that_was_under_way_says_nothing_of_what_replaced_the_entries_it_synced() -> None:
    disk = Disk()
    disk.add(6, term=1)
    disk.executor.work(1)
    disk.writer.flush()
    disk.add(3, term=2, truncate_from=3)
    disk.executor.work(2)
    assert disk.writer.synced_index == 2
    disk.writer.flush()
    disk.executor.work(1)
    assert disk.writer.synced_index == 5


def test_what_was_synced_and_then_replaced_is_not_synced() -> None:
    disk = Disk()
    disk.add(6, term=1)
    disk.executor.work(1)
    disk.writer.flush()
    disk.executor.work(1)
    assert disk.writer.synced_index == 5
    disk.add(3, term=2, truncate_from=3)
    assert disk.writer.synced_index == 2
    disk.executor.work(1)
    assert disk.writer.synced_index == 2


def test_a_sync_begun_before_a_waiting_cut_is_written_counts_up_to_the_cut() -> None:
    disk = Disk()
    disk.add(4, term=1)
    disk.add(2, term=1)
    disk.add(2, term=2, truncate_from=2)
    disk.executor.work(1)
    disk.writer.flush()
    disk.executor.work(2)
    assert disk.writer.synced_index == 1
    disk.writer.flush()
    disk.executor.work(1)
    assert disk.writer.synced_index == 3
