"""The room ahead of the log: zeros for small appends, reserved for large ones."""

from __future__ import annotations

import ctypes
import errno
from pathlib import Path

import pytest

from store.io import os_filesystem
from store.io.os_filesystem import OsFileSystem
from store.log import room_ahead
from store.log.room_ahead import APPENDS_AHEAD, LARGE_APPEND, ZEROED_AHEAD, RoomAhead
from store.replica import ReplicaStore, StoreConfig
from tests.store.small_logs import Writer, contents, data_of

SEGMENT = 64 << 10
CONFIG = StoreConfig("broker-a", "n0", segment_size=SEGMENT, min_free_bytes=0)


def test_room_is_reserved_while_appends_are_large() -> None:
    room = RoomAhead()
    room.appends, end = 9, 10 << 30
    room.sample(end)  # what was there at the start was not appended
    assert (room.reserved, room.size) == (0, ZEROED_AHEAD)
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
        assert (room.reserved, room.size) == (reserved, reserved or ZEROED_AHEAD)


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
