"""Appends that end while nobody waits for them: when they count, and when they do not."""

from __future__ import annotations

import errno
import os

import pytest

from simulator.engine.disk import SimulatedFileSystem
from store.errors import FatalDiskError, StoreError
from store.io.filesystem import BLOCK_SIZE
from store.replica import ReplicaStore, StoreConfig
from tests.store.manual_async_writes import HandWrites
from tests.store.small_logs import Writer, contents, data_of, open_store, simulated

CONFIG = StoreConfig(
    "broker-a", "n0", 4 * BLOCK_SIZE, min_free_bytes=0, index_rows_per_file=4, direct=True
)


class Log:
    """A store with one entry that was written in the ordinary way."""

    def __init__(self) -> None:
        self.fs: SimulatedFileSystem = simulated()
        self.disk = self.fs.writes = HandWrites()
        self.writer = Writer(CONFIG.segment_size)
        self.store: ReplicaStore = open_store(self.fs, CONFIG)
        self.store.save_hard_state(1, "n0")
        self.store.preallocate_next()
        self.told: list[BaseException | None] = []
        self.store.append(self.writer.make_many(1))
        self.store.sync()

    def begin(self, count: int, size: int = 30) -> bool:
        return self.store.begin_append(self.writer.make_many(count, size), self.told.append)


def test_entries_are_in_the_log_when_their_write_has_ended_and_not_before() -> None:
    log = Log()
    assert log.begin(3)
    assert (log.store.last_index, log.told) == (0, [])
    log.disk.end()
    assert (log.store.last_index, log.told) == (3, [None])
    assert contents(log.store) == data_of(log.writer.entries)
    log.fs.power_loss()
    assert open_store(log.fs, CONFIG).recovered.last_index == 3


def test_what_does_not_follow_is_refused_and_nothing_is_begun() -> None:
    log = Log()
    entries = log.writer.make_many(2)
    with pytest.raises(StoreError, match="entry 2 of term 1 does not follow entry 0"):
        log.store.begin_append(entries[1:], log.told.append)
    assert (log.disk.under_way, log.told) == ([], [])


def test_a_write_that_must_be_done_again_leaves_the_log_where_it_was() -> None:
    log = Log()
    assert log.begin(2)
    log.disk.end(BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)))
    assert log.store.last_index == 0
    assert isinstance(log.told[0], BlockingIOError)
    log.store.append(log.writer.entries[1:])
    log.store.sync()
    assert log.begin(1)
    log.disk.end()
    assert contents(log.store) == data_of(log.writer.entries)


def test_a_write_that_failed_ends_the_store() -> None:
    log = Log()
    assert log.begin(2)
    log.disk.end(OSError(errno.EIO, os.strerror(errno.EIO)))
    assert isinstance(log.told[0], FatalDiskError)
    with pytest.raises(FatalDiskError, match="the store failed before"):
        log.begin(1)


def test_nothing_is_begun_that_takes_more_than_one_write() -> None:
    log = Log()
    assert not log.store.begin_append([], log.told.append)
    assert not log.begin(2, CONFIG.segment_size - 500)  # over the end of the segment
    log.writer.cut(1)
    log.store.append(log.writer.make_many(1))
    assert not log.begin(1)  # behind what is not synced
    log.writer.cut(2)
    log.store.sync()
    assert log.begin(1)
    log.disk.end()
    assert log.told == [None]


def test_an_append_into_reserved_room_is_left_to_the_log_thread() -> None:
    """Small ones until they have written zeros there."""
    log = Log()
    room = log.store._log._room
    segment = log.store._log.segments[0]
    segment._reserved = (0, segment.size)
    while not room.needs_zeros:
        assert not log.begin(1, 0)
        log.writer.cut(-1)
        log.store.append(log.writer.make_many(1, 0))
        log.store.sync()
    log.store.append(log.writer.make_many(1, 0))
    log.store.sync()
    assert log.begin(1, 0)
    log.disk.end()
    assert contents(log.store) == data_of(log.writer.entries)


def test_a_write_that_ends_in_a_closed_store_is_followed_by_none() -> None:
    log = Log()
    assert log.begin(1)
    log.store.close()
    log.disk.under_way[0][3](None)
    with pytest.raises(FatalDiskError, match="the store is closed"):
        log.begin(1)
    with pytest.raises(FatalDiskError, match="the store is closed"):
        log.store.append(log.writer.make_many(1))


def test_what_is_seen_to_be_durable_has_its_row_in_the_index(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = Log()
    seen: list[tuple[int, int]] = []
    append = log.store._index.append

    def watched(rows: bytes) -> None:
        seen.append((log.store._log.end, log.store._log.synced_end))
        append(rows)

    monkeypatch.setattr(log.store._index, "append", watched)
    before = log.store.end_position
    assert log.begin(1)
    log.disk.end()
    assert seen == [(log.store.end_position, before)]
