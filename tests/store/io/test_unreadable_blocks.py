"""Reading and writing a file with blocks that the disk cannot read."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from simulator.engine.disk import Fault, SimulatedFileSystem
from store.io.filesystem import BLOCK_SIZE
from store.io.os_filesystem import OsFileSystem
from store.io.unreadable_blocks import overwrite_blocks, read_until_unreadable, widened_range
from tests.store.small_logs import (
    simulated,
)


def block_file(fs: SimulatedFileSystem, size: int) -> bytes:
    data = bytes(1 + at % 251 for at in range(size))
    file = fs.open("/f", create=True)
    file.pwrite(data, 0)
    file.datasync()
    return data


def test_what_lies_before_a_block_that_cannot_be_read_is_read() -> None:
    fs = simulated()
    data = block_file(fs, 4 * BLOCK_SIZE)
    fs.lose_sector("/f", 2 * BLOCK_SIZE + 5)
    file = fs.open("/f")
    begin, error = read_until_unreadable(file, 9 * BLOCK_SIZE, 10)
    assert begin == data[10 : 2 * BLOCK_SIZE]
    assert error is not None
    assert read_until_unreadable(file, BLOCK_SIZE, BLOCK_SIZE) == (
        data[BLOCK_SIZE : 2 * BLOCK_SIZE],
        None,
    )
    begin, error = read_until_unreadable(file, 10, 2 * BLOCK_SIZE + 9)
    assert begin == b""
    assert error is not None
    assert read_until_unreadable(file, 9 * BLOCK_SIZE, 3 * BLOCK_SIZE) == (
        data[3 * BLOCK_SIZE :],
        None,
    )


@pytest.mark.parametrize("file_size", [3 * BLOCK_SIZE, 2 * BLOCK_SIZE + 700])
@pytest.mark.parametrize(
    ("offset", "size", "kept"),
    [
        (2 * BLOCK_SIZE + 100, 50, range(2 * BLOCK_SIZE)),
        (BLOCK_SIZE + 100, BLOCK_SIZE, range(2 * BLOCK_SIZE)),
        (2 * BLOCK_SIZE, 50, range(2 * BLOCK_SIZE)),
        (2 * BLOCK_SIZE + 690, 10, range(2 * BLOCK_SIZE)),
    ],
)
def test_a_block_is_written_as_a_whole_and_keeps_nothing_else(
    file_size: int, offset: int, size: int, kept: range
) -> None:
    fs = simulated()
    data = bytearray(block_file(fs, file_size))
    fs.lose_sector("/f", 2 * BLOCK_SIZE + 1)
    file = fs.open("/f")
    with pytest.raises(OSError, match="Input/output error"):
        file.pwrite(b"\xff" * size, offset)
    overwrite_blocks(file, b"\xff" * size, offset)
    file.datasync()
    expected = data[: len(kept)] + bytes(file_size - len(kept))
    expected[offset : offset + size] = b"\xff" * size
    fs.power_loss()
    assert fs.open("/f").pread(2 * file_size, 0) == expected


def test_where_all_can_be_read_nothing_but_the_bytes_is_written(tmp_path: Path) -> None:
    fs, path = OsFileSystem(), str(tmp_path / "f")
    file = fs.open(path, create=True)
    file.pwrite(b"x" * 3 * BLOCK_SIZE, 0)
    assert widened_range(file, 30, BLOCK_SIZE - 10) == (BLOCK_SIZE - 10, BLOCK_SIZE + 20)
    overwrite_blocks(file, b"y" * 30, BLOCK_SIZE - 10)
    data = file.pread(9 * BLOCK_SIZE, 0)
    assert data == b"x" * (BLOCK_SIZE - 10) + b"y" * 30 + b"x" * (2 * BLOCK_SIZE - 20)


@pytest.mark.parametrize("reads", [1, 2, 3])
def test_a_read_that_fails_once_costs_nothing_beside_the_bytes(reads: int) -> None:
    fs = simulated()
    data = bytearray(block_file(fs, 3 * BLOCK_SIZE))
    fs.inject(Fault(reads, operations=("pread",)))
    overwrite_blocks(fs.open("/f"), b"\xff" * BLOCK_SIZE, BLOCK_SIZE // 2)
    data[BLOCK_SIZE // 2 : BLOCK_SIZE // 2 + BLOCK_SIZE] = b"\xff" * BLOCK_SIZE
    assert fs.visible_bytes("/f") == data


def test_a_write_that_fails_where_the_disk_can_read_is_a_failed_write() -> None:
    fs = simulated()
    block_file(fs, 3 * BLOCK_SIZE)
    fs.inject(Fault(1, errno.EIO))
    with pytest.raises(OSError, match="Input/output error"):
        overwrite_blocks(fs.open("/f"), b"\xff" * 10, BLOCK_SIZE - 5)


def test_an_error_that_says_nothing_of_the_bytes_is_raised() -> None:
    fs = simulated()
    block_file(fs, BLOCK_SIZE)

    class NoMemory:
        def pread(self, size: int, position: int) -> bytes:
            raise OSError(errno.ENOMEM, f"no memory for {size} bytes from {position}")

    for read in (
        lambda file: read_until_unreadable(file, 10, 0),
        lambda file: widened_range(file, 10, 5),
    ):
        with pytest.raises(OSError, match="no memory"):
            read(NoMemory())
