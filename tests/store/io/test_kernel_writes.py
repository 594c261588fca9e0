"""What the kernel gives for writes that nobody waits for, and what it holds until their end."""

from __future__ import annotations

import ctypes
import os
import platform
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from store.io import io_uring, kernel_aio, os_filesystem
from store.io.async_io import BACKOFF_SECONDS, AsyncWrites
from store.io.io_uring import IoUring
from store.io.kernel_aio import KernelAio
from store.io.kernel_calls import system_call
from store.io.os_filesystem import OsFileSystem
from tests.store.io.hand_kernel import Clock, HandKernel, begun


@pytest.mark.parametrize("module", [io_uring, kernel_aio])
def test_what_the_kernel_does_not_give_is_not_used(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType
) -> None:
    other = KernelAio if module is io_uring else IoUring
    monkeypatch.setattr(module, "system_call", lambda *_arguments: -1)
    found = AsyncWrites.open(Clock().time)
    assert found is None or isinstance(found._kernel, other)
    if found is not None:
        found.close()


def test_where_there_are_none_nothing_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "sparc")
    assert AsyncWrites.open(Clock().time) is None


def test_a_ring_of_an_older_kernel_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_features(number: ctypes.c_long, *arguments: Any) -> int:
        found: int = system_call(number, *arguments)
        if number.value == io_uring._SETUP.value:
            arguments[1][io_uring._FEATURES_AT] = b"\x05"
        return found

    monkeypatch.setattr(io_uring, "system_call", without_features)
    before = os.listdir("/proc/self/fd")
    assert IoUring.open() is None
    assert os.listdir("/proc/self/fd") == before


def test_the_lock_of_a_killed_process_is_held_until_its_last_write(
    tmp_path: Path, writes: AsyncWrites, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os_filesystem, "LOCK_SECONDS", 0.0)
    path = str(tmp_path / "lock")
    lock = OsFileSystem(writes).lock(path)
    with pytest.raises(BlockingIOError):
        OsFileSystem().lock(path)
    if isinstance(writes._kernel, IoUring):
        os.close(lock._fd)  # as the kernel does when it ends a process
        with pytest.raises(BlockingIOError):
            OsFileSystem().lock(path)
        monkeypatch.undo()
        writes.close()
        OsFileSystem().lock(path).release()  # waits until the kernel has given up the ring


def test_a_lock_that_is_given_up_is_free_at_once(
    tmp_path: Path, writes: AsyncWrites, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os_filesystem, "LOCK_SECONDS", 0.0)
    path = str(tmp_path / "lock")
    for _ in range(3):
        OsFileSystem(writes).lock(path).release()
    OsFileSystem().lock(path).release()


def test_where_the_kernel_does_not_hold_the_lock_nothing_is_begun(
    tmp_path: Path, kernel: HandKernel
) -> None:
    kernel.holds = False
    writes = AsyncWrites(kernel, kernel.clock.time)
    assert begun(writes, 1) == 1
    OsFileSystem(writes).lock(str(tmp_path / "lock")).release()
    assert begun(writes, 1) == 0
    kernel.clock.now += 2 * BACKOFF_SECONDS[1]
    assert begun(writes, 1) == 0
