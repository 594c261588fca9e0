"""Appends past the page cache leave the same file as any other writes."""

from __future__ import annotations

import errno
import mmap
import os
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import store.io.direct_io
from store.io.direct_io import BUFFER_SIZE, DirectWriter
from store.io.filesystem import BLOCK_SIZE
from store.io.os_filesystem import OsFile, OsFileSystem

SIZES = st.lists(
    st.one_of(
        st.integers(1, 3 * BLOCK_SIZE),
        st.sampled_from(
            [BLOCK_SIZE, 2 * BLOCK_SIZE, BUFFER_SIZE - 1, BUFFER_SIZE, BUFFER_SIZE + 1]
        ),
    ),
    min_size=1,
    max_size=8,
)


def new_file(path: Path) -> OsFile:
    path.unlink(missing_ok=True)
    return OsFileSystem().open(str(path), create=True)


@settings(deadline=None)  # the disk may have much else to do
@given(sizes=SIZES, seed=st.integers(0, 1 << 30), is_synced=st.sampled_from([False] * 9 + [True]))
def test_appends_of_any_sizes_lie_one_after_the_other(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], seed: int, is_synced: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if not is_synced:  # most are not, or most of this would be waiting
            patch.setattr(store.io.direct_io, "_DSYNC", 0)
        file = new_file(tmp_path_factory.getbasetemp() / "appends")
        rng = random.Random(seed)
        expected = b""
        for size in sizes:
            data = rng.randbytes(size)
            file.append_direct(data, len(expected))
            expected += data
            assert file.pread(len(expected), 0) == expected
        behind = file.pread(BLOCK_SIZE, len(expected))
        assert behind == bytes(len(behind))
        assert len(behind) < BLOCK_SIZE


def test_zeros_that_lie_behind_stay(tmp_path: Path) -> None:
    file = new_file(tmp_path / "a")
    file.pwrite(bytes(3 * BLOCK_SIZE), 0)
    file.append_direct(b"first", 0)
    file.append_direct(b"second", 5)
    assert file.pread(4 * BLOCK_SIZE, 0) == b"firstsecond".ljust(3 * BLOCK_SIZE, b"\0")


def test_what_another_write_changed_in_the_block_is_not_written_over(tmp_path: Path) -> None:
    file = new_file(tmp_path / "a")
    file.append_direct(b"0123456789", 0)
    file.pwrite(b"xx", 4)
    file.pwrite(bytes(2), 8)
    file.append_direct(b"end", 8)
    assert file.pread(11, 0) == b"0123xx67end"


def test_an_append_behind_what_another_process_wrote_keeps_it(tmp_path: Path) -> None:
    first = new_file(tmp_path / "a")
    first.append_direct(b"a" * 5000, 0)
    second = OsFileSystem().open(str(tmp_path / "a"))
    second.append_direct(b"b" * 10, 5000)
    assert second.pread(6000, 0).rstrip(b"\0") == b"a" * 5000 + b"b" * 10


def test_whole_blocks_in_whole_pages_are_written_from_where_they_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = mmap.mmap(-1, 4 * BLOCK_SIZE)
    pages[:] = random.Random(1).randbytes(len(pages))
    whole, addresses = os.pwrite, []

    def watched(fd: int, data: bytes, position: int) -> int:
        addresses.append(np.frombuffer(data, np.uint8).ctypes.data)
        return whole(fd, data, position)

    monkeypatch.setattr(store.io.direct_io, "_DSYNC", 0)
    monkeypatch.setattr(os, "pwrite", watched)
    file = new_file(tmp_path / "a")
    file.append_direct(memoryview(pages)[BLOCK_SIZE:], 0)
    assert addresses == [np.frombuffer(pages, np.uint8).ctypes.data + BLOCK_SIZE]
    file.append_direct(b"end", 3 * BLOCK_SIZE)
    assert file.pread(3 * BLOCK_SIZE + 3, 0) == pages[BLOCK_SIZE:] + b"end"


def test_where_the_system_knows_no_such_writes_they_go_through_the_page_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store.io.direct_io, "_O_DIRECT", 0)
    assert DirectWriter.open(str(tmp_path)) is None
    file = new_file(tmp_path / "a")
    file.append_direct(b"hello", 0)
    file.append_direct(b"world", 5)
    assert file.pread(100, 0) == b"helloworld"


def test_where_the_file_cannot_be_opened_so_it_is_written_through_the_page_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = new_file(tmp_path / "a")

    def refused(path: str, flags: int, *mode: int) -> int:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)

    monkeypatch.setattr(os, "open", refused)
    file.append_direct(b"hello", 0)
    assert file.pread(100, 0) == b"hello"


def test_where_the_device_wants_larger_blocks_it_is_written_through_the_page_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = new_file(tmp_path / "a")
    whole, whole_synced = os.pwrite, os.pwritev

    def refused(fd: int, data: bytes, position: int) -> int:
        if len(data) % BLOCK_SIZE == 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return whole(fd, data, position)

    def refused_synced(fd: int, data: list[bytes], position: int, flags: int) -> int:
        if len(data[0]) % BLOCK_SIZE == 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return whole_synced(fd, data, position, flags)

    monkeypatch.setattr(os, "pwrite", refused)
    monkeypatch.setattr(os, "pwritev", refused_synced)
    file.append_direct(b"hello", 0)
    file.append_direct(b"world", 5)
    assert file.pread(100, 0) == b"helloworld"


def test_a_short_write_is_continued_and_an_error_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store.io.direct_io, "_DSYNC", 0)
    file = new_file(tmp_path / "a")
    whole = os.pwrite
    calls: list[int] = []

    def short(fd: int, data: bytes, position: int) -> int:
        calls.append(len(data))
        if len(calls) == 4:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return whole(fd, data[:BLOCK_SIZE], position)

    monkeypatch.setattr(os, "pwrite", short)
    data = random.Random(1).randbytes(2 * BLOCK_SIZE + 1)
    file.append_direct(data, 0)
    assert calls == [3 * BLOCK_SIZE, 2 * BLOCK_SIZE, BLOCK_SIZE]
    assert file.pread(len(data), 0) == data
    with pytest.raises(OSError, match="Input/output"):
        file.append_direct(b"more", len(data))


class Syncs:
    """Counts calls of ``fdatasync``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        monkeypatch.setattr(os, "fdatasync", self._sync)

    def _sync(self, fd: int) -> None:
        self.count += 1

    def of(self, file: OsFile) -> int:
        """How many of them it takes to sync the file now."""
        before = self.count
        file.datasync()
        return self.count - before


def written_and_synced(path: Path) -> OsFile:
    """A file of which what others may have written is synced."""
    file = new_file(path)
    writer = DirectWriter.open(str(path))
    if writer is None or not writer.append(b"?", 0, b""):
        pytest.skip("the file system knows no writes past the page cache")
    writer.close()
    file.append_direct(b"hello", 0)
    file.datasync()
    return file


@pytest.mark.skipif(not hasattr(os, "RWF_DSYNC"), reason="the system syncs no single write")
def test_one_direct_write_is_durable_without_another_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags: list[int] = []
    whole = os.pwritev

    def noted(fd: int, data: list[memoryview], position: int, flag: int) -> int:
        flags.append(flag)
        return whole(fd, data, position, flag)

    file = written_and_synced(tmp_path / "a")
    monkeypatch.setattr(os, "pwritev", noted)
    syncs = Syncs(monkeypatch)
    file.append_direct(b"world", 5)
    assert flags == [os.RWF_DSYNC]
    assert syncs.of(file) == 0
    assert file.pread(100, 0).rstrip(b"\0") == b"helloworld"


def test_an_append_of_several_writes_is_synced_by_a_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written_and_synced(tmp_path / "a")
    syncs = Syncs(monkeypatch)
    file.append_direct(bytes(BUFFER_SIZE), 5)
    file.append_direct(b"!", 5 + BUFFER_SIZE)
    assert syncs.of(file) == 1
    assert syncs.of(file) == 0


@pytest.mark.parametrize("then", ["written over", "truncated"])
def test_a_file_that_was_written_over_is_synced_by_a_call_and_not_by_every_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    file = written_and_synced(tmp_path / "a")
    syncs = Syncs(monkeypatch)
    if then == "written over":
        file.pwrite(b"world", 5)
    else:
        file.truncate(5)
    assert syncs.of(file) == 1
    assert syncs.of(file) == 0


def test_a_sync_does_not_speak_for_what_is_written_while_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written_and_synced(tmp_path / "a")
    file.pwrite(b"world", 5)

    def sync(fd: int) -> None:  # and another thread writes
        file.pwrite(b"!", 10)

    monkeypatch.setattr(os, "fdatasync", sync)
    file.datasync()
    assert Syncs(monkeypatch).of(file) == 1


def test_a_file_that_was_just_opened_is_synced_whoever_wrote_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written_and_synced(tmp_path / "a")
    again = OsFileSystem().open(str(tmp_path / "a"))
    assert Syncs(monkeypatch).of(again) == 1


@pytest.mark.parametrize("error", [errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS])
def test_where_no_single_write_can_be_synced_the_file_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    def refused(fd: int, data: list[memoryview], position: int, flag: int) -> int:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, "pwritev", refused)
    file = written_and_synced(tmp_path / "a")
    syncs = Syncs(monkeypatch)
    file.append_direct(b"world", 5)
    assert syncs.of(file) == 1
    assert file.pread(100, 0).rstrip(b"\0") == b"helloworld"


@pytest.mark.skipif(not hasattr(os, "RWF_DSYNC"), reason="the system syncs no single write")
def test_a_short_write_is_continued_and_synced_by_a_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = os.pwritev

    def short(fd: int, data: list[memoryview], position: int, flag: int) -> int:
        return whole(fd, [data[0][:BLOCK_SIZE]], position, flag)

    file = written_and_synced(tmp_path / "a")
    monkeypatch.setattr(os, "pwritev", short)
    syncs = Syncs(monkeypatch)
    data = random.Random(1).randbytes(2 * BLOCK_SIZE)
    file.append_direct(data, 5)
    assert syncs.of(file) == 1
    assert file.pread(5 + len(data), 0) == b"hello" + data
