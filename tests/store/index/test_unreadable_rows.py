"""Derived files with blocks that the disk cannot read: found, and never taken for empty."""

from __future__ import annotations

from contextlib import suppress

import pytest

from simulator.engine.disk import SimulatedFileSystem
from simulator.engine.disk_faults import PowerLossError
from store.errors import DamagedError
from store.index.block_seals import Tail
from store.index.consume_queue import ConsumeQueue
from store.index.key_file import HEADER, KEY_ROW_SIZE
from store.index.key_index import KeyIndex
from store.index.queue_rows import OpenFiles, QueueRows
from store.message.batch import QUEUE_ROW
from tests.store.small_logs import simulated

QUEUE = "/queues/orders/0"


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
        again = KeyIndex(fs, "/keyindex")
        again.restore(1 << 40)
        with pytest.raises(DamagedError, match="cannot be read"):
            again.lookup(1, *ALWAYS, 10)


def queue_on(fs: SimulatedFileSystem, count: int) -> ConsumeQueue:
    """With so many rows on the disk."""
    queue = ConsumeQueue(OpenFiles(fs), "/queues", "orders", 0)
    queue.append(0, b"".join(QUEUE_ROW.pack(100 * k, 100, 7) for k in range(count)))
    queue.flushed(queue.write_until(count))
    return queue


@pytest.mark.parametrize("sync", [True, False])
@pytest.mark.parametrize("covered", [30, 10])
def test_a_queue_goes_on_behind_a_block_that_cannot_be_read(covered: int, sync: bool) -> None:
    fs = simulated()
    queue_on(fs, 30)
    fs.lose_sector(f"{QUEUE}/{0:020d}", 0)
    queue = ConsumeQueue(OpenFiles(fs), "/queues", "orders", 0)
    queue.restore(0, Tail(covered))
    with pytest.raises(DamagedError, match="cannot be read"):
        queue.read(0, 1)
    queue.append(covered, QUEUE_ROW.pack(100 * covered, 100, 7))
    queue.flushed(queue.write_until(covered + 1, sync=sync))
    with pytest.raises(DamagedError):
        queue.read(0, 1)


@pytest.mark.parametrize("room", [100, 600])
@pytest.mark.parametrize("calls", range(1, 6))
@pytest.mark.parametrize("sync", [True, False])
def test_a_write_over_the_last_block_of_a_file_makes_it_no_longer_whenever_it_is_interrupted(
    calls: int, room: int, sync: bool
) -> None:
    """Rows behind those of a file are the next file's, and nothing would remove them."""
    fs = simulated()
    tail, path = queue_on(fs, 30).tail, f"{QUEUE}/{0:020d}"
    rows = fs.visible_bytes(path)
    fs.lose_sector(path, 0)
    fs.capacity = fs.used_bytes() + room
    fs.lose_power_at(calls)
    with suppress(PowerLossError, OSError):
        QueueRows(OpenFiles(fs), "/queues", "orders", 0).write(
            5, rows[5 * QUEUE_ROW.size :], sync=sync
        )
    fs.crash()
    assert len(fs.visible_bytes(path)) <= len(rows)
    fs.disarm()
    fs.capacity = None
    queue = ConsumeQueue(OpenFiles(fs), "/queues", "orders", 0)
    queue.restore(0, tail)
    queue.write(0, rows, sync=sync)
    assert queue.read(0, 30) == fs.visible_bytes(path) == rows


def test_rows_of_which_a_checkpoint_covers_none_are_removed_readable_or_not() -> None:
    fs = simulated()
    queue = queue_on(fs, 30)
    fs.lose_sector(f"{QUEUE}/{0:020d}", 0)
    queue.restore(0, Tail(0))
    queue._cut_leftovers()
    assert not fs.exists(f"{QUEUE}/{0:020d}")
