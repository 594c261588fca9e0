"""Writes that the kernel does while nobody waits: what they leave in a file, and what they tell."""

from __future__ import annotations

import errno
import mmap
import os
import random
import select
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from store.io.async_io import (
    BACKOFF_SECONDS,
    REFUSALS_MAX,
    SLOW_CALL_SECONDS,
    SLOW_WRITE_SECONDS,
    AsyncWrites,
)
from store.io.direct_io import BUFFER_SIZE
from store.io.filesystem import BLOCK_SIZE
from store.io.kernel_calls import IN_FLIGHT_MAX
from store.io.os_filesystem import OsFile, OsFileSystem
from tests.store.io.hand_kernel import HandKernel, begun

SIZE = 1 << 21


class HandWrites:
    """Takes writes, and lets the test say how each ends."""

    def __init__(self) -> None:
        self.under_way: list[tuple[int, int, Callable[[int], None]]] = []

    def submit(
        self, fd: int, address: int, size: int, position: int, then: Callable[[int], None]
    ) -> bool:
        self.under_way.append((size, position, then))
        return True

    def hold(self, _fd: int) -> None:
        """Nothing outlives a test."""


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """On a disk: that of other tests may be in memory, where no write can be told not to wait."""
    with TemporaryDirectory() as directory:
        yield Path(directory)


def prepared(path: Path, writes: AsyncWrites | HandWrites | None) -> OsFile:
    """A file of synced zeros whose first three bytes were appended."""
    file = OsFileSystem(writes).open(str(path), create=True)
    file.pwrite(bytes(SIZE), 0)
    file.append_direct(b"abc", 0)
    file.datasync()
    if file._direct is None:
        pytest.skip("the file system knows no writes past the page cache")
    if isinstance(writes, AsyncWrites) and not is_written_at_once_or_not(path):
        pytest.skip("the file system knows no writes that must not wait")
    return file


def is_written_at_once_or_not(path: Path) -> bool:
    """Whether the file system can be told that a write must not wait: those of containers and in
    memory refuse all that say so. Asked by way of another call than that of the writes tested."""
    fd = os.open(path, os.O_WRONLY | os.O_DIRECT)
    try:
        with mmap.mmap(-1, BLOCK_SIZE) as zeros:
            os.pwritev(fd, [zeros], SIZE - BLOCK_SIZE, os.RWF_NOWAIT | os.RWF_DSYNC)
    except BlockingIOError:
        return True
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        return False
    finally:
        os.close(fd)
    return True


def outcome(writes: AsyncWrites, told: list[OSError | None]) -> OSError | None:
    """What the one write under way is told to have come to."""
    while not told:
        select.select([writes], [], [])
        writes.completed()
    return told.pop()


def test_appends_of_many_sizes_lie_one_after_the_other_before_zeros(
    tmp_path: Path, writes: AsyncWrites
) -> None:
    file = prepared(tmp_path / "a", writes)
    rng, expected, begun, refused = random.Random(1), b"abc", 0, 0
    for size in [1, 4090, 3, BLOCK_SIZE, 2 * BLOCK_SIZE - 1, 100_000, 5, 250_000, 17]:
        data, told = rng.randbytes(size), list[OSError | None]()
        if file.begin_append(data, len(expected), told.append):
            begun += 1
            if isinstance(outcome(writes, told), BlockingIOError):  # the disk has much else to do
                refused += 1
                file.append_direct(data, len(expected))
        else:
            file.append_direct(data, len(expected))
        file.datasync()
        expected += data
        assert file.pread(len(expected) + BLOCK_SIZE, 0) == expected + bytes(BLOCK_SIZE)
    assert begun == 9 or (begun, refused) == (REFUSALS_MAX, REFUSALS_MAX)


def test_what_has_ended_well_needs_no_sync(
    tmp_path: Path, writes: AsyncWrites, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = prepared(tmp_path / "a", writes)
    told: list[OSError | None] = []
    assert file.begin_append(b"def", 3, told.append)
    if outcome(writes, told) is not None:
        pytest.skip("the disk had much else to do")

    def refused(_fd: int) -> None:
        raise AssertionError("a sync")

    monkeypatch.setattr(os, "fdatasync", refused)
    file.datasync()


def test_nothing_is_begun_where_it_would_be_more_than_one_write(
    tmp_path: Path, writes: AsyncWrites
) -> None:
    file = prepared(tmp_path / "a", writes)
    told: list[OSError | None] = []
    assert not file.begin_append(bytes(BUFFER_SIZE - 2), 3, told.append)
    assert not file.begin_append(b"far away", 10_000, told.append)
    file.pwrite(b"elsewhere", 9_000)
    assert not file.begin_append(b"def", 3, told.append)
    file.datasync()
    assert not file.begin_append(b"def", 3, told.append)  # its block may be another by now
    again = OsFileSystem(writes).open(str(tmp_path / "a"))
    assert not again.begin_append(b"def", 3, told.append)
    assert not prepared(tmp_path / "b", None).begin_append(b"def", 3, told.append)
    assert (told, writes.in_flight) == ([], 0)


@pytest.mark.parametrize(
    ("result", "told"),
    [
        (BLOCK_SIZE, None),
        (512, BlockingIOError),
        (0, BlockingIOError),
        (-errno.EAGAIN, BlockingIOError),
        (-errno.ENOSPC, BlockingIOError),
        (-errno.EINVAL, BlockingIOError),
        (-errno.EIO, OSError),
    ],
)
def test_each_end_of_a_write_is_told_as_what_it_is(
    tmp_path: Path, result: int, told: type[OSError] | None
) -> None:
    writes = HandWrites()
    file = prepared(tmp_path / "a", writes)
    errors: list[OSError | None] = []
    assert file.begin_append(b"def", 3, errors.append)
    [(size, position, then)] = writes.under_way
    assert (size, position, errors) == (BLOCK_SIZE, 0, [])
    then(result)
    assert [None if error is None else type(error) for error in errors] == [told]
    assert errors[0] is None or errors[0].errno in {-result, errno.EAGAIN}


def test_a_write_that_was_cut_short_is_done_again_without_reading_what_was_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes = HandWrites()
    file = prepared(tmp_path / "a", writes)
    assert file.begin_append(b"d" * BLOCK_SIZE, 3, lambda _error: None)
    writes.under_way[0][2](512)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", None)
        file.append_direct(b"d" * BLOCK_SIZE, 3)
        file.datasync()
    assert file.begin_append(b"e", 3 + BLOCK_SIZE, lambda _error: None)
    assert file.pread(3 + BLOCK_SIZE, 0) == b"abc" + b"d" * BLOCK_SIZE


def test_nothing_is_begun_while_the_buffer_is_being_written(tmp_path: Path) -> None:
    writes = HandWrites()
    file = prepared(tmp_path / "a", writes)
    assert file.begin_append(b"d" * (BLOCK_SIZE - 3), 3, lambda _error: None)
    assert not file.begin_append(b"e", BLOCK_SIZE, lambda _error: None)
    writes.under_way[0][2](BLOCK_SIZE)
    assert file.begin_append(b"e", BLOCK_SIZE, lambda _error: None)


class WatchedLock:
    """A lock that tells when somebody begins to wait for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.waited_for = threading.Event()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if blocking and self._lock.locked():
            self.waited_for.set()
        return self._lock.acquire(blocking, timeout)

    def release(self) -> None:
        self._lock.release()


def test_other_writes_to_the_file_wait_for_the_one_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page cache would be filled from the disk while that changes, and be written back."""
    disk = HandWrites()
    file = prepared(tmp_path / "a", disk)
    turn = WatchedLock()
    monkeypatch.setattr(file, "_turn", turn)
    assert file.begin_append(b"def", 3, lambda _error: None)
    with ThreadPoolExecutor(1) as thread:
        written = thread.submit(file.pwrite, b"B", 1)
        turn.waited_for.wait()
        assert not written.done()
        disk.under_way[0][2](BLOCK_SIZE)
        written.result()
    assert not file.begin_append(b"g", 6, lambda _error: None)  # its block is another now
    file.append_direct(b"g", 6)
    assert file.pread(3, 0) == b"aBc"


def test_a_write_that_waits_for_another_ends_with_the_file(tmp_path: Path) -> None:
    file = prepared(tmp_path / "a", HandWrites())
    assert file.begin_append(b"def", 3, lambda _error: None)
    with ThreadPoolExecutor(1) as thread:
        written = thread.submit(file.pwrite, b"B", 1)
        file.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            written.result()


@pytest.mark.parametrize("why", ["slow call", "slow write", "refused writes", "refused call"])
def test_nothing_is_begun_for_a_while_where_it_does_not_go_well(
    kernel: HandKernel, why: str
) -> None:
    writes = AsyncWrites(kernel, kernel.clock.time)
    assert begun(writes, 20) == 20
    if why == "slow call":
        kernel.call_seconds = 2 * SLOW_CALL_SECONDS
    elif why == "slow write":
        kernel.write_seconds = 2 * SLOW_WRITE_SECONDS
    elif why == "refused writes":
        kernel.result = -errno.EAGAIN
    else:
        kernel.refuses = True
    tried = {"refused writes": REFUSALS_MAX, "refused call": 0}.get(why, 1)
    first, longest = BACKOFF_SECONDS
    rest = first
    for _ in range(9):
        assert begun(writes, 20) == tried
        kernel.clock.now += 0.9 * rest
        assert begun(writes, 20) == 0
        kernel.clock.now += 0.1 * rest
        rest = min(2 * rest, longest)
    kernel.call_seconds = kernel.write_seconds = 0.0
    kernel.result, kernel.refuses = BLOCK_SIZE, False
    assert begun(writes, 20) == 20
    kernel.call_seconds = 2 * SLOW_CALL_SECONDS
    assert begun(writes, 20) == 1
    kernel.clock.now += first
    assert begun(writes, 20) == 1


def test_one_who_raises_when_told_keeps_nothing_from_the_others(
    tmp_path: Path, writes: AsyncWrites
) -> None:
    def refuse(_error: OSError | None) -> None:
        raise ValueError("told")

    assert prepared(tmp_path / "a", writes).begin_append(b"def", 3, refuse)
    with pytest.raises(ValueError, match="told"):
        writes.close()
    assert (writes.in_flight, writes.fileno()) == (0, -1)


def test_more_than_it_has_room_for_are_not_begun_and_closing_waits_for_all(
    tmp_path: Path, writes: AsyncWrites
) -> None:
    files = [prepared(tmp_path / str(number), writes) for number in range(IN_FLIGHT_MAX + 1)]
    told: list[OSError | None] = []
    begun = [file.begin_append(b"def", 3, told.append) for file in files]
    assert begun == [True] * IN_FLIGHT_MAX + [False]
    writes.close()
    assert len(told) == IN_FLIGHT_MAX
    assert {type(error) for error in told} <= {type(None), BlockingIOError}
    writes.close()


def test_a_write_that_the_kernel_does_not_take_is_not_begun_or_ends_with_its_error(
    tmp_path: Path, writes: AsyncWrites
) -> None:
    file = prepared(tmp_path / "a", writes)
    told: list[int] = []
    if writes.submit(file._fd + 1000, 0, BLOCK_SIZE, 0, told.append):
        while not told:
            select.select([writes], [], [])
            writes.completed()
        assert told == [-errno.EBADF]
    assert writes.in_flight == 0
