"""The room ahead of the log: zeros for small appends, reserved for large ones."""

from __future__ import annotations

import ctypes
import errno
from pathlib import Path
from random import Random

import pytest

from simulator.engine.disk import PowerLossError
from store.io import os_filesystem
from store.io.filesystem import BLOCK_SIZE, Bytes, File
from store.io.os_filesystem import OsFileSystem
from store.log import room_ahead, segment
from store.log.layout import SEGMENT_SIZE_MAX
from store.log.room_ahead import (
    APPENDS_AHEAD,
    LARGE_APPEND,
    LARGE_APPENDS_IN_SEGMENT,
    SMALL_IN_A_ROW,
    ZEROED_AHEAD,
    ZEROED_AT_FIRST,
    RoomAhead,
)
from store.replica import ReplicaStore, StoreConfig
from tests.store.small_logs import Writer, contents, data_of, open_store, simulated

SEGMENT = 64 << 10
STEP = 2 * BLOCK_SIZE
CONFIG = StoreConfig("broker-a", "n0", segment_size=SEGMENT, min_free_bytes=0)


def test_room_is_reserved_while_appends_are_large() -> None:
    room = RoomAhead(SEGMENT_SIZE_MAX)
    room.appends, end = 9, 10 << 30
    room.sample(end)  # what was there at the start was not appended
    assert (room.reserved, room.size) == (0, ZEROED_AT_FIRST)
    for count, size, reserved in (
        (2, 2 * LARGE_APPEND, APPENDS_AHEAD * LARGE_APPEND),
        (0, 0, APPENDS_AHEAD * LARGE_APPEND),
        (3, 3 * LARGE_APPEND - 1, 0),
        (1, 16 << 20, ZEROED_AHEAD),
        (5, -1000, 0),
    ):
        room.appends += count
        end += size
        room.sample(end)
        assert (room.reserved, room.size) == (reserved, reserved or ZEROED_AT_FIRST)


def test_zeros_grow_while_the_log_does() -> None:
    room = RoomAhead(SEGMENT_SIZE_MAX)
    end, sizes = 0, []
    for used in (0, ZEROED_AT_FIRST // 2 - 1, *[ZEROED_AHEAD // 2] * 4):
        room.appends += used // 100
        end += used
        room.sample(end)
        sizes.append(room.size)
    assert [size // ZEROED_AT_FIRST for size in sizes] == [1, 1, 2, 4, 8, 8]
    room.appends += 1
    room.sample(1 << 30)  # a large append: what follows begins again
    room.appends += 1
    room.sample((1 << 30) + 1)
    assert room.size == ZEROED_AT_FIRST


def test_reserved_room_needs_zeros_after_small_appends_in_a_row() -> None:
    for segment_size, large in (
        (SEGMENT_SIZE_MAX, LARGE_APPEND),
        (SEGMENT, SEGMENT // LARGE_APPENDS_IN_SEGMENT),
    ):
        room = RoomAhead(segment_size)
        for _ in range(2):
            for _ in range(SMALL_IN_A_ROW):
                assert not room.needs_zeros
                room.count(large - 1)
            assert room.needs_zeros
            room.count(large)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes that each call reserves."""
    monkeypatch.setattr(room_ahead, "LARGE_APPEND", 1)
    sizes: list[int] = []
    allocate = os_filesystem.OsFile.allocate

    def counted(file: os_filesystem.OsFile, size: int, position: int) -> bool:
        sizes.append(size)
        return allocate(file, size, position)

    monkeypatch.setattr(os_filesystem.OsFile, "allocate", counted)
    return sizes


def test_a_log_in_reserved_room_is_read_again(tmp_path: Path, written: list[int]) -> None:
    fs, writer = OsFileSystem(), Writer(SEGMENT)
    store = ReplicaStore.open(fs, str(tmp_path), CONFIG)
    store.save_hard_state(1, "")
    for _ in range(40):
        store.append(writer.make_many(3, 3000))
        store.sync()
        store.preallocate_next()
    assert len(written) > 5
    assert contents(store) == data_of(writer.entries)
    store.close()
    again = ReplicaStore.open(fs, str(tmp_path), CONFIG)
    assert contents(again) == data_of(writer.entries)
    again.append(writer.make_many(3, 3000))
    assert contents(again) == data_of(writer.entries)
    again.close()


@pytest.mark.parametrize("error", [errno.EOPNOTSUPP, errno.EPERM, errno.EINTR, errno.ENOSPC])
def test_where_room_cannot_be_reserved_zeros_are_written(
    tmp_path: Path, written: list[int], monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    """On a full disk, too, once there is room for a step of zeros."""

    def failing(*_arguments: object) -> int:
        ctypes.set_errno(error)
        return -1

    monkeypatch.setattr(os_filesystem, "_FALLOCATE", failing)
    writer = Writer(SEGMENT)
    store = ReplicaStore.open(OsFileSystem(), str(tmp_path), CONFIG)
    store.save_hard_state(1, "")
    for _ in range(40):
        store.append(writer.make_many(1, 3000))
        store.sync()
        for _ in range(2):  # the first may meet the full disk
            store.preallocate_next()
    assert written
    assert not store.needs_preallocation
    assert contents(store) == data_of(writer.entries)
    for file in (tmp_path / "commitlog").iterdir():
        assert file.stat().st_blocks * 512 >= file.stat().st_size
    store.close()


def test_all_room_that_is_reserved_and_not_used_is_known(tmp_path: Path) -> None:
    fs, size = OsFileSystem(), 4 * STEP
    log = segment.Segment(fs, str(tmp_path), 0, size, direct=True)
    log.create()
    for end in (STEP, 3 * STEP):
        assert log.allocate(log.file, end)
    entry = b"entry" * 100
    for offset in (0, 2 * STEP):
        log.append(entry, offset, zeros_ahead=True)
    assert log._reserved == (0, 0)
    assert log.file.pread(size, 0).replace(b"\0", b"") == 2 * entry
    log.close()


@pytest.fixture
def zeros(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of zeros that are written below the end of a file. The steps are small ones."""
    monkeypatch.setattr(room_ahead, "LARGE_APPEND", 8192)
    monkeypatch.setattr(room_ahead, "SMALL_IN_A_ROW", 3)
    monkeypatch.setattr(segment, "ZERO_STEP", STEP)
    sizes: list[int] = []
    append = segment.Segment._append

    def appended(of: segment.Segment, file: File, data: Bytes, offset: int) -> None:
        if offset + len(data) <= of.zeroed_end and not any(data):
            sizes.append(len(data))
        append(of, file, data, offset)

    monkeypatch.setattr(segment.Segment, "_append", appended)
    return sizes


class Mixed:
    """Runs of large and of small appends."""

    def __init__(self, seed: int, *, direct: bool) -> None:
        self._rng = Random(seed)
        self.writer = Writer(SEGMENT)
        self.config = StoreConfig("broker-a", "n0", SEGMENT, min_free_bytes=0, direct=direct)
        self.durable = 0

    def run(self, store: ReplicaStore, times: int) -> None:
        store.save_hard_state(1, "")
        rng = self._rng
        for _ in range(times):
            for size in [9000] * rng.randint(1, 4) + [rng.randint(1, 3000)] * rng.randint(0, 12):
                store.append(self.writer.make_many(1, size))
                store.sync()
                self.durable = len(self.writer.entries)
                if rng.random() < 0.5:
                    store.preallocate_next()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("direct", [True, False])
def test_small_appends_write_zeros_into_reserved_room(
    tmp_path: Path, zeros: list[int], seed: int, direct: bool
) -> None:
    """In steps, and never over an entry."""
    mixed = Mixed(seed, direct=direct)
    store = ReplicaStore.open(OsFileSystem(), str(tmp_path), mixed.config)
    mixed.run(store, 30)
    assert len(zeros) > 4
    assert max(zeros) == STEP
    assert contents(store) == data_of(mixed.writer.entries)
    store.close()
    again = ReplicaStore.open(OsFileSystem(), str(tmp_path), mixed.config)
    assert contents(again) == data_of(mixed.writer.entries)
    again.close()


@pytest.mark.parametrize("keep", [0.0, 0.5, 1.0])
def test_what_was_durable_survives_a_power_loss_in_any_step(zeros: list[int], keep: float) -> None:
    for call in range(1, 2000):
        mixed, fs = Mixed(1, direct=True), simulated()
        store = open_store(fs, mixed.config)
        fs.lose_power_at(call)
        try:
            mixed.run(store, 10)
        except PowerLossError:
            fs.power_loss(keep=keep)
        else:
            assert zeros
            return
        again = open_store(fs, mixed.config)
        found = contents(again)
        assert found == data_of(mixed.writer.entries[: len(found)])
        assert len(found) >= mixed.durable
    raise AssertionError("more calls than were tried")
