"""Which entries may be called written and synced: when some are cut, and when a write that nobody
waits for ends in one way or another."""

from __future__ import annotations

import errno
import os
from random import Random
from typing import TypeVar

import pytest

from dledger.node.log_writer import LogWriter
from dledger.raft.ready import Write
from simulator.engine.disk import SimulatedFileSystem
from store.errors import FatalDiskError
from store.log.entry import Entry, EntryKind, build_entry
from store.replica import ReplicaStore, StoreConfig
from tests.store.manual_async_writes import HandWrites
from tests.support.fake_executor import FakeExecutor

T = TypeVar("T")


class Disk:
    """A log writer on a simulated disk."""

    def __init__(self, *, sync_flush: bool = False) -> None:
        fs = SimulatedFileSystem(Random(1))
        self.begun = fs.writes = HandWrites()
        config = StoreConfig("g", "n0", 1 << 16, min_free_bytes=0, direct=True)
        self.store = ReplicaStore.open(fs, "/data", config)
        self.executor = FakeExecutor()
        self.executor.hold()
        self.written: list[int] = []
        self.failures: list[BaseException] = []
        self.now = 0.0
        self.writer = LogWriter(
            store=self.store,
            executor=self.executor,
            sync_flush=sync_flush,
            clock=lambda: self.now,
            written=lambda writes: self.written.extend(write.id for write in writes),
            failed=self.failures.append,
        )
        self._writes = 0
        self._entries: list[Entry] = []

    def add(self, count: int, term: int | None, *, truncate_from: int | None = None) -> None:
        """Hands the writer ``count`` entries, after a cut if one is asked for; the term is saved
        before unless there is none, and then the last one goes on."""
        self._writes += 1
        if truncate_from is not None:
            del self._entries[truncate_from:]
        hard_state = None if term is None else (term, "")
        write = Write(self._writes, hard_state=hard_state, truncate_from=truncate_from)
        term = self._entries[-1].term if term is None else term
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

    def store_entry(self, index: int) -> Entry:
        """One that was handed to the writer before."""
        return self._entries[index]


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


def begun() -> Disk:
    """With synchronous flush, and a write under way that nobody waits for."""
    disk = Disk(sync_flush=True)
    disk.add(1, term=1)
    disk.executor.work(1)
    disk.add(2, term=None)
    assert (len(disk.begun.under_way), disk.written, disk.writer.busy) == (1, [1], True)
    return disk


def test_what_only_appends_needs_no_job_and_what_comes_meanwhile_goes_together() -> None:
    disk = begun()
    disk.add(1, term=None)
    disk.add(1, term=None)
    disk.begun.end()
    assert (disk.written, disk.store.last_index, disk.writer.synced_index) == ([1, 2], 2, 2)
    disk.begun.end()
    assert (disk.written, disk.store.last_index, disk.writer.busy) == ([1, 2, 3, 4], 4, False)


def test_a_term_or_a_cut_waits_for_the_write_under_way_and_is_a_job() -> None:
    disk = begun()
    disk.add(1, term=2, truncate_from=2)
    disk.begun.end()
    assert (disk.written, disk.begun.under_way) == ([1, 2], [])
    disk.executor.work(1)
    assert (disk.written, disk.store.last_index, disk.writer.synced_index) == ([1, 2, 3], 2, 2)


def test_a_write_that_must_wait_after_all_becomes_a_job_before_any_other() -> None:
    disk = begun()
    disk.add(1, term=None)
    disk.begun.end(BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)))
    assert (disk.written, disk.begun.under_way, disk.writer.busy) == ([1], [], True)
    disk.executor.work(1)
    assert (disk.written, disk.store.last_index) == ([1, 2], 2)
    disk.begun.end()
    assert disk.written == [1, 2, 3]


def test_a_write_that_fails_ends_the_node_and_keeps_nobody_waiting() -> None:
    disk, drained = begun(), list[str]()
    disk.writer.drain(lambda: drained.append("drained"))
    disk.begun.end(OSError(errno.EIO, os.strerror(errno.EIO)))
    assert [type(error) for error in disk.failures] == [FatalDiskError]
    assert disk.written == [1]
    disk.executor.work(1)
    assert drained == ["drained"]


def test_entries_that_do_not_follow_end_the_node_in_an_event_of_their_own() -> None:
    disk = begun()
    disk.begun.end()
    disk.writer.add(Write(9, entries=[disk.store_entry(0)]))
    assert disk.failures == []
    disk.executor.work(1)
    assert (len(disk.failures), disk.begun.under_way) == (1, [])
    assert "does not follow" in str(disk.failures[0])


def test_a_flush_leaves_alone_what_is_being_written_while_nobody_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk, flushed = begun(), list[str]()
    synced: list[str] = []
    monkeypatch.setattr(disk.store, "sync", lambda: synced.append("synced"))
    disk.writer.flush(lambda: flushed.append("flushed"))
    disk.executor.work(1)
    assert (flushed, synced, disk.writer.synced_index) == (["flushed"], [], 0)
    disk.begun.end()
    assert disk.writer.synced_index == 2


def test_all_is_drained_when_what_waits_is_written_too() -> None:
    disk, drained = begun(), list[str]()
    disk.add(1, term=None)
    disk.writer.drain(lambda: drained.append("drained"))
    disk.begun.end()
    assert drained == []
    disk.begun.end()
    disk.executor.work(1)
    assert (drained, disk.written) == (["drained"], [1, 2, 3])


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


def test_a_sync_is_timed_until_the_entries_are_known_to_be_durable() -> None:
    disk = begun()
    before = disk.writer.sync_seconds.count
    disk.now += 0.25
    disk.begun.end()
    assert disk.writer.sync_seconds.count == before + 1
    assert disk.writer.sync_seconds.sum == 0.25


def test_with_asynchronous_flush_the_sync_is_timed_and_not_the_write_before_it() -> None:
    disk = Disk()
    disk.add(6, term=1)
    disk.now += 5.0
    disk.executor.work(1)
    assert disk.writer.sync_seconds.count == 0
    disk.writer.flush()
    disk.now += 0.5
    disk.executor.work(1)
    assert (disk.writer.sync_seconds.count, disk.writer.sync_seconds.sum) == (1, 0.5)
