"""Opening files where no descriptor is left."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from store.errors import DiskFullError, OutOfDescriptorsError
from store.io.descriptor_reserve import WAIT_SECONDS, DescriptorReserve
from store.io.os_filesystem import OsFileSystem


class Limit:
    """Lets so many files be opened at a time, as the kernel would."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, free: int, error: int = errno.EMFILE):
        self.free = free
        self._error = error
        self._counted: set[int] = set()
        self._open, self._close = os.open, os.close
        monkeypatch.setattr(os, "open", self.open)
        monkeypatch.setattr(os, "close", self.close)

    def open(self, *args: object, **named: object) -> int:
        if self.free == 0:
            raise OSError(self._error, os.strerror(self._error), args[0])
        fd = self._open(*args, **named)  # type: ignore[arg-type]  # as it was called
        self.free -= 1
        self._counted.add(fd)
        return fd

    def close(self, fd: int) -> None:
        self._close(fd)
        if fd in self._counted:
            self._counted.remove(fd)
            self.free += 1


@pytest.fixture(params=[errno.EMFILE, errno.ENFILE])
def limited(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Callable[[int], Limit]:
    return lambda free: Limit(monkeypatch, free, request.param)


def test_files_are_opened_from_the_reserve(limited: Callable[[int], Limit], tmp_path: Path) -> None:
    limit = limited(3)
    reserve = DescriptorReserve(3, may_wait=lambda: False)
    fs = OsFileSystem(None, reserve)
    files = [fs.open(f"{tmp_path}/{n}", create=True) for n in range(3)]
    assert (limit.free, reserve.left) == (0, 0)
    files.pop().close()
    fs.sync_directory(str(tmp_path))
    assert fs.list_directory(str(tmp_path)) == ["0", "1", "2"]
    assert reserve.left == 1  # what was closed is in reserve before others can take it


def test_files_are_read_from_the_reserve(limited: Callable[[int], Limit], tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    limited(1)
    fs = OsFileSystem(None, DescriptorReserve(1, may_wait=lambda: False))
    file = fs.open(f"{tmp_path}/a", writable=False)
    assert file.pread(9, 0) == b"abc"
    file.close()


def test_that_nothing_is_left_is_no_failure_of_the_disk(
    limited: Callable[[int], Limit], tmp_path: Path
) -> None:
    (tmp_path / "there").touch()
    limited(0)
    fs = OsFileSystem(None, DescriptorReserve(2, may_wait=lambda: False))
    for opening in (
        lambda: fs.open(f"{tmp_path}/a", create=True),
        lambda: fs.open(f"{tmp_path}/there", writable=False),
        lambda: fs.sync_directory(str(tmp_path)),
        lambda: fs.sync_all(str(tmp_path)),
        lambda: fs.lock(f"{tmp_path}/lock"),
    ):
        with pytest.raises(OutOfDescriptorsError, match="cannot be opened now") as caught:
            opening()
        assert isinstance(caught.value, DiskFullError)
        assert not isinstance(caught.value, OSError)


def test_a_thread_waits_until_one_is_free(limited: Callable[[int], Limit], tmp_path: Path) -> None:
    limit = limited(0)
    slept = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        limit.free += len(slept) == 7

    fs = OsFileSystem(None, DescriptorReserve(0, may_wait=lambda: True, sleep=sleep))
    fs.open(f"{tmp_path}/a", create=True).close()
    assert len(slept) == 7


def test_a_thread_does_not_wait_for_ever(limited: Callable[[int], Limit], tmp_path: Path) -> None:
    limited(0)
    slept: list[float] = []
    reserve = DescriptorReserve(0, may_wait=lambda: True, sleep=slept.append)
    with pytest.raises(OutOfDescriptorsError):
        OsFileSystem(None, reserve).open(f"{tmp_path}/a", create=True)
    assert sum(slept) == pytest.approx(WAIT_SECONDS)


def test_what_is_missing_or_forbidden_is_told_as_ever(tmp_path: Path) -> None:
    reserve = DescriptorReserve(2)
    fs = OsFileSystem(None, reserve)
    with pytest.raises(FileNotFoundError):
        fs.open(f"{tmp_path}/a")
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        fs.list_directory(f"{tmp_path}/file")
    assert reserve.left == 2
    fs.close()
    assert reserve.left == 0
