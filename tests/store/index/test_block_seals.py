"""Blocks of ConsumeQueues: whatever rots on the disk, rows that are given are the right ones."""

from __future__ import annotations

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from simulator.engine.disk import SimulatedFileSystem
from store.errors import DerivedDamageError
from store.index.block_seals import BLOCK_ROWS, ROW_SIZE, SEAL_SIZE, SEAL_SUFFIX
from store.index.consume_queue import ConsumeQueue
from store.index.consume_queues import ConsumeQueues
from store.index.queue_tails import TAILS_NAME, amend_tails, read_tails
from store.log.layout import segment_name
from store.message.batch import QUEUE_ROW
from tests.store.small_logs import simulated
from tests.support.search_effort import searching

DIRECTORY = "/data/consumequeue"
ROWS = f"{DIRECTORY}/orders/0/{segment_name(0)}"
SEALS = ROWS + SEAL_SUFFIX
TAILS = f"/data/state/{TAILS_NAME}"
COUNT = 2 * BLOCK_ROWS + 100


def row(offset: int) -> bytes:
    return QUEUE_ROW.pack(1000 * offset, 200, offset % 7)


def rows(first: int, end: int) -> bytes:
    return b"".join(map(row, range(first, end)))


def written(parts: tuple[int, ...] = (COUNT,)) -> SimulatedFileSystem:
    """A queue whose rows came to the disk in so many flushes."""
    fs = simulated()
    queues = ConsumeQueues(fs, DIRECTORY)
    queue = queues.get_or_create("orders", 0)
    for count in parts:
        queue.append(queue.end_offset, rows(queue.end_offset, queue.end_offset + count))
        flush = queues.begin_flush()
        flush.run()
        flush.finish()
    return fs


def opened(fs: SimulatedFileSystem, count: int = COUNT) -> ConsumeQueue:
    queues = ConsumeQueues(fs, DIRECTORY)
    queues.restore([("orders", 0, 0, count)])
    return queues.get_or_create("orders", 0)


def given_of(queue: ConsumeQueue) -> int:
    """How many rows it gives one by one; each must be the right one."""
    count = 0
    for offset in range(queue.end_offset):
        try:
            found = queue.read(offset, 1)
        except DerivedDamageError:
            continue
        assert found == row(offset), offset
        count += 1
    return count


@pytest.mark.parametrize("parts", [(COUNT,), (1000, 24, 1, 1123), (1024, 1024, 100), (700,) * 3])
def test_full_blocks_have_seals_however_their_rows_came(parts: tuple[int, ...]) -> None:
    fs = written(parts)
    count = sum(parts)
    expected = written((count,))
    assert len(fs.visible_bytes(SEALS)) == count // BLOCK_ROWS * SEAL_SIZE
    for path in (ROWS, SEALS, TAILS):
        assert fs.visible_bytes(path) == expected.visible_bytes(path)
    queue = opened(fs, count)
    assert all(queue.is_sealed(offset) for offset in range(count))
    assert queue.read(0, count) == rows(0, count)


@searching(40)
@given(st.sampled_from((ROWS, SEALS)), st.floats(0, 1, exclude_max=True), st.integers(0, 7))
def test_a_flipped_bit_gives_nobody_a_wrong_row_and_hides_no_other_block(
    path: str, share: float, bit: int
) -> None:
    fs = written()
    byte = int(share * len(fs.visible_bytes(path)))
    fs.flip_bit(path, byte, bit)
    size = ROW_SIZE * BLOCK_ROWS if path == ROWS else SEAL_SIZE
    lost = 100 if byte // size == 2 else BLOCK_ROWS
    assert given_of(opened(fs)) == COUNT - lost


def test_a_row_with_another_tags_code_is_refused() -> None:
    fs = written()
    fs.flip_bit(ROWS, 5 * ROW_SIZE + ROW_SIZE - 1, 0)
    assert given_of(opened(fs)) == COUNT - BLOCK_ROWS


def test_who_reads_a_block_that_is_not_whole_is_told_where_its_records_begin() -> None:
    fs = written()
    fs.flip_bit(ROWS, (BLOCK_ROWS + 5) * ROW_SIZE, 0)
    with pytest.raises(DerivedDamageError) as caught:
        opened(fs).read(BLOCK_ROWS + 3, 1)
    assert caught.value.log_position == 1000 * BLOCK_ROWS
    fs.flip_bit(ROWS, (2 * BLOCK_ROWS + 5) * ROW_SIZE, 0)
    with pytest.raises(DerivedDamageError) as caught:
        opened(fs).read(COUNT - 1, 1)
    assert caught.value.log_position == 2000 * BLOCK_ROWS


@pytest.mark.parametrize("lost", [(SEALS,), (TAILS,), (SEALS, TAILS)])
def test_without_checksums_rows_are_read_that_follow_each_other(lost: tuple[str, ...]) -> None:
    """As all rows that a program of format 1 has written."""
    fs = written()
    for path in lost:
        fs.vanish(path)
    queue = opened(fs)
    assert queue.read(0, COUNT) == rows(0, COUNT)
    assert [queue.is_sealed(0), queue.is_sealed(COUNT - 1)] == [
        path not in lost for path in (SEALS, TAILS)
    ]
    fs.overwrite(ROWS, bytes(ROW_SIZE), 7 * ROW_SIZE)
    with pytest.raises(DerivedDamageError):
        opened(fs).read(5, 10)


def test_amended_tails_leave_those_of_another_end_as_they_are() -> None:
    """The newer end is that of a checkpoint that is just being saved."""
    fs = written()
    before = read_tails(fs, "/data/state")
    tail = before["orders", 0]
    other = tail._replace(crc=tail.crc ^ 1)
    amend_tails(fs, "/data/state", {("orders", 0): other._replace(end=tail.end - 1)})
    assert read_tails(fs, "/data/state") == before
    amend_tails(fs, "/data/state", {("orders", 0): other, ("orders", 1): tail})
    assert read_tails(fs, "/data/state") == {("orders", 0): other, ("orders", 1): tail}


@pytest.mark.parametrize("grows", [False, True])
def test_a_flush_keeps_a_tail_that_was_sealed_after_it_began(grows: bool) -> None:
    fs = simulated()
    queues = ConsumeQueues(fs, DIRECTORY)
    queue, other = (queues.get_or_create("orders", number) for number in range(2))
    for count in (10, 5):
        queue.append(queue.end_offset, rows(queue.end_offset, queue.end_offset + count * grows))
        if not grows and count == 10:
            queue.append(0, rows(0, count))
        other.append(other.end_offset, rows(other.end_offset, other.end_offset + count))
        flush = queues.begin_flush()
        before = queue.tail
        sealed = before._replace(crc=before.crc ^ 1) if before.end else before
        queue.seal_tail(sealed)
        flush.run()
        flush.finish()
    added = rows(10, 15) if grows else b""
    assert queue.tail.crc == crc32c(added, sealed.crc)
    assert read_tails(fs, "/data/state")["orders", 0] == queue.tail


def test_damaged_tails_are_as_none() -> None:
    fs = written()
    fs.flip_bit(TAILS, 20, 3)
    queue = opened(fs)
    assert not queue.is_sealed(COUNT - 1)
    assert queue.read(0, COUNT) == rows(0, COUNT)
