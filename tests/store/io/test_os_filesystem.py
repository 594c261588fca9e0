"""The real file system keeps the promises of the protocol."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

import pytest

import store.io.os_filesystem
from store.io import os_filesystem
from store.io.os_filesystem import OsFileSystem


@pytest.fixture
def fs() -> OsFileSystem:
    return OsFileSystem()


def test_bytes_written_at_a_position_are_read_back(fs: OsFileSystem, tmp_path: Path) -> None:
    file = fs.open(f"{tmp_path}/a", create=True)
    file.pwrite(b"hello", 3)
    file.datasync()
    assert file.pread(100, 0) == b"\0\0\0hello"
    assert file.size() == 8


def test_a_read_past_the_end_is_short(fs: OsFileSystem, tmp_path: Path) -> None:
    file = fs.open(f"{tmp_path}/a", create=True)
    file.pwrite(b"hello", 0)
    assert file.pread(10, 3) == b"lo"
    assert file.pread(10, 5) == b""


def test_a_read_into_a_buffer_says_how_much_there_was(fs: OsFileSystem, tmp_path: Path) -> None:
    file = fs.open(f"{tmp_path}/a", create=True)
    file.pwrite(b"hello", 0)
    buffer = bytearray(b"......")
    assert file.pread_into(memoryview(buffer)[:3], 1) == 3
    assert buffer == b"ell..."
    assert file.pread_into(memoryview(buffer), 3) == 2
    assert buffer == b"lol..."
    assert file.pread_into(memoryview(buffer), 5) == 0


def test_a_short_read_into_a_buffer_is_continued(
    fs: OsFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = fs.open(f"{tmp_path}/a", create=True)
    file.pwrite(b"hello", 0)
    preadv = os.preadv
    monkeypatch.setattr(
        os, "preadv", lambda fd, buffers, position: preadv(fd, [buffers[0][:2]], position)
    )
    buffer = bytearray(5)
    assert file.pread_into(memoryview(buffer), 0) == 5
    assert buffer == b"hello"


def test_a_short_write_is_continued(
    fs: OsFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = fs.open(f"{tmp_path}/a", create=True)
    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: whole(fd, bytes(data)[:3], at))
    file.pwrite(b"0123456789", 0)
    assert file.pread(20, 0) == b"0123456789"


def test_a_write_opens_or_creates_a_file_and_keeps_its_other_bytes(
    fs: OsFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = len(os.listdir("/proc/self/fd"))
    fs.write(f"{tmp_path}/a", b"hello", 0)
    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: whole(fd, bytes(data)[:1], at))
    fs.write(f"{tmp_path}/a", b"y!!", 4)
    assert (tmp_path / "a").read_bytes() == b"helly!!"
    with pytest.raises(FileNotFoundError):
        fs.write(f"{tmp_path}/b/a", b"hello", 0)
    monkeypatch.setattr(os, "pwrite", lambda _fd, _data, _at: 0)
    with pytest.raises(OSError, match="no progress"):
        fs.write(f"{tmp_path}/a", b"x", 0)
    assert len(os.listdir("/proc/self/fd")) == before


def test_opening_an_absent_file_needs_leave_to_create_it(fs: OsFileSystem, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        fs.open(f"{tmp_path}/a")
    fs.open(f"{tmp_path}/a", create=True).close()
    assert fs.exists(f"{tmp_path}/a")


def test_a_file_opened_for_reading_refuses_writes(fs: OsFileSystem, tmp_path: Path) -> None:
    fs.open(f"{tmp_path}/a", create=True).close()
    file = fs.open(f"{tmp_path}/a", writable=False)
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.pwrite(b"x", 0)


def test_a_closed_file_cannot_read_a_descriptor_that_others_got(
    fs: OsFileSystem, tmp_path: Path
) -> None:
    file = fs.open(f"{tmp_path}/a", create=True)
    file.close()
    fs.open(f"{tmp_path}/b", create=True)
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.pread(1, 0)


def test_a_file_let_go_closes_its_descriptor(fs: OsFileSystem, tmp_path: Path) -> None:
    fs.open(f"{tmp_path}/a", create=True)
    before = len(os.listdir("/proc/self/fd"))
    file = fs.open(f"{tmp_path}/a")
    assert len(os.listdir("/proc/self/fd")) == before + 1
    del file
    assert len(os.listdir("/proc/self/fd")) == before


def test_directories_are_made_with_their_parents_and_listed_in_order(
    fs: OsFileSystem, tmp_path: Path
) -> None:
    fs.make_directories(f"{tmp_path}/a/b/c")
    fs.make_directories(f"{tmp_path}/a/b/c")
    for name in ("z", "m", "a"):
        fs.open(f"{tmp_path}/a/b/{name}", create=True).close()
    assert fs.list_directory(f"{tmp_path}/a/b") == ["a", "c", "m", "z"]


def test_only_directories_that_are_made_are_synced_each_in_its_parent(
    fs: OsFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(OsFileSystem, "sync_directory", lambda _fs, path: synced.append(path))
    monkeypatch.chdir(tmp_path)
    fs.make_directories("a/b")
    assert synced == [f"{tmp_path}", f"{tmp_path}/a"]
    fs.make_directories(f"{tmp_path}/a/b")
    fs.make_directories(f"{tmp_path}/a/c/d", sync=False)
    assert (len(synced), fs.list_directory(f"{tmp_path}/a/c")) == (2, ["d"])


def test_rename_replaces_and_link_does_not(fs: OsFileSystem, tmp_path: Path) -> None:
    for name in ("a", "b"):
        fs.open(f"{tmp_path}/{name}", create=True).pwrite(name.encode(), 0)
    fs.rename(f"{tmp_path}/a", f"{tmp_path}/b")
    assert fs.open(f"{tmp_path}/b").pread(9, 0) == b"a"
    fs.link(f"{tmp_path}/b", f"{tmp_path}/c")
    with pytest.raises(FileExistsError):
        fs.link(f"{tmp_path}/b", f"{tmp_path}/c")


def test_removing_a_tree_that_is_not_there_is_no_error(fs: OsFileSystem, tmp_path: Path) -> None:
    fs.make_directories(f"{tmp_path}/a/b")
    fs.remove_tree(f"{tmp_path}/a")
    fs.remove_tree(f"{tmp_path}/a")
    assert not fs.exists(f"{tmp_path}/a")


def test_removing_a_tree_that_is_a_file_removes_it(fs: OsFileSystem, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    fs.remove_tree(str(tmp_path / "file"))
    assert list(tmp_path.iterdir()) == []


def test_a_write_does_not_wait_for_who_reads_a_pipe(fs: OsFileSystem, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="No such device"):
        fs.write(str(tmp_path / "pipe"), b"rows", 0)


@pytest.mark.parametrize("error", [errno.EACCES, errno.EROFS])
def test_a_directory_that_is_there_needs_no_leave_to_make_it(
    fs: OsFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    """Some network file systems look at permissions first."""

    def refused(path: str, _mode: int) -> None:
        raise OSError(error, os.strerror(error), path)

    monkeypatch.setattr(os, "mkdir", refused)
    fs.make_directories(str(tmp_path))
    with pytest.raises(OSError, match=os.strerror(error)):
        fs.make_directories(str(tmp_path / "new"))


def test_a_lock_excludes_others_until_it_is_released(
    fs: OsFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os_filesystem, "LOCK_SECONDS", 0.0)
    lock = fs.lock(f"{tmp_path}/lock")
    with pytest.raises(BlockingIOError):
        fs.lock(f"{tmp_path}/lock")
    lock.release()
    fs.lock(f"{tmp_path}/lock").release()


def test_free_bytes_of_a_disk_are_known(fs: OsFileSystem, tmp_path: Path) -> None:
    assert fs.free_bytes(str(tmp_path)) > 0


def test_a_barrier_syncs_the_file_system_and_tells_what_fails(
    fs: OsFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs.sync_all(str(tmp_path))

    def failing(_fd: int) -> int:
        ctypes.set_errno(errno.EIO)
        return -1

    monkeypatch.setattr(store.io.os_filesystem, "_SYNCFS", failing)
    with pytest.raises(OSError, match="Input/output error"):
        fs.sync_all(str(tmp_path))


def test_without_a_barrier_of_one_file_system_all_are_synced(
    fs: OsFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[bool] = []
    monkeypatch.setattr(store.io.os_filesystem, "_SYNCFS", None)
    monkeypatch.setattr(os, "sync", lambda: synced.append(True))
    fs.sync_all(str(tmp_path))
    assert synced == [True]
