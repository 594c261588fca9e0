"""Derived files with blocks that the disk cannot read: found, and never taken for empty."""

from __future__ import annotations

import pytest

from simulator.engine.disk import SimulatedFileSystem
from store.errors import DamagedError
from store.index.consume_queue import ConsumeQueue, OpenFiles
from store.index.key_index import HEADER, KEY_ROW_SIZE, KeyIndex
from tests.store.small_logs import (
    simulated,
)


def key_files(count: int = 1000) -> tuple[SimulatedFileSystem, KeyIndex, str]:
    fs = simulated()
    index = KeyIndex(fs, "/keyindex")
    rows = bytearray()
    for number in range(count):
        rows += number.to_bytes(4, "big") + (100 + number).to_bytes(8, "big") + bytes(4)
    index.append(bytes(rows))
    flush = index.begin_flush()
    assert flush is not None
    flush.run()
    flush.finish()
    return fs, index, f"/keyindex/{100:020d}"


ALWAYS = (0, 1 << 40)


@pytest.mark.parametrize("cut", [0, 20, 40, 41, 44, 56, 8040, 12000, 16039])
def test_a_key_file_cut_while_it_is_in_use_never_says_that_there_is_no_such_key(cut: int) -> None:
    fs, index, path = key_files()
    fs.cut(path, cut)
    told = 0
    for number in range(1000):
        try:
            assert index.lookup(number, *ALWAYS, 10) == [100 + number]
        except DamagedError:
            told += 1
    assert told >= 1000 - max(0, cut - HEADER.size) // KEY_ROW_SIZE


@pytest.mark.parametrize("byte", [0, 100, 5000, 9000, 16000])
def test_a_key_file_with_a_block_that_cannot_be_read_never_does_either(byte: int) -> None:
    fs, index, path = key_files()
    fs.lose_sector(path, byte)
    told = 0
    for number in range(1000):
        try:
            assert index.lookup(number, *ALWAYS, 10) == [100 + number]
        except DamagedError:
            told += 1
    assert told
    if byte < HEADER.size:
        with pytest.raises(DamagedError, match="cannot be read"):
            KeyIndex(fs, "/keyindex").restore(1 << 40)


@pytest.mark.parametrize(("covered", "first"), [(30, 0), (10, 0), (10, 10)])
def test_a_queue_to_which_no_rows_can_be_added_is_damaged(covered: int, first: int) -> None:
    """Found as it is restored, so that it is made again, and not when rows must be written."""
    fs = simulated()
    queue = ConsumeQueue(OpenFiles(fs), "/queue")
    queue.append(0, bytes(range(20)) * 30)
    flush = queue.begin_flush()
    assert flush is not None
    flush.run()
    fs.lose_sector(f"/queue/{0:020d}", 0)
    with pytest.raises(DamagedError, match="cannot be read"):
        ConsumeQueue(OpenFiles(fs), "/queue").restore(first, covered)


def test_rows_of_which_a_checkpoint_covers_none_are_removed_readable_or_not() -> None:
    fs = simulated()
    queue = ConsumeQueue(OpenFiles(fs), "/queue")
    queue.append(0, bytes(range(20)) * 30)
    flush = queue.begin_flush()
    assert flush is not None
    flush.run()
    fs.lose_sector(f"/queue/{0:020d}", 0)
    queue.restore(0, 0)
    assert not fs.exists(f"/queue/{0:020d}")
