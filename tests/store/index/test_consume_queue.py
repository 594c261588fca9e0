"""ConsumeQueues: their rows on disk, what a start keeps of them, damage, and expiry."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.engine.disk import Fault, SimulatedFileSystem
from store.errors import DamagedError, StoreError
from store.index.block_seals import ROW_SIZE
from store.index.queue_rows import OpenFiles
from tests.store.index.small_queues import (
    DIRECTORY,
    QUEUE,
    flush,
    flushed,
    queues_on,
    read_all,
    row,
    row_files,
    rows,
)
from tests.store.small_logs import simulated


@pytest.fixture
def fs() -> SimulatedFileSystem:
    return simulated()


def test_rows_lie_where_the_format_says(fs: SimulatedFileSystem) -> None:
    flushed(fs, 10)
    assert row_files(fs) == [f"{QUEUE}/{start:020d}" for start in (0, 80, 160)]
    found = [fs.durable_bytes(path) for path in row_files(fs)]
    assert found == [rows(0, 4), rows(4, 4), rows(8, 2)]


def test_rows_that_leave_a_gap_are_refused(fs: SimulatedFileSystem) -> None:
    queue = queues_on(fs).get_or_create("orders", 0)
    queue.append(0, rows(0, 2))
    for offset in (1, 3):
        with pytest.raises(StoreError, match="do not follow offset 1"):
            queue.append(offset, rows(offset, 1))
    with pytest.raises(StoreError):
        queue.append(2, rows(2, 1)[:-1])


@given(st.integers(0, 12), st.integers(0, 12), st.binary(max_size=50))
def test_rows_behind_a_checkpoint_are_cut_whatever_they_are(
    covered: int, more: int, garbage: bytes
) -> None:
    fs = simulated()
    flushed(fs, covered + more)
    files = row_files(fs)
    if files:
        last = files[-1]
        fs.overwrite(last, garbage, len(fs.visible_bytes(last)))
    queues = queues_on(fs)
    queues.restore([("orders", 0, 0, covered)])
    queue = queues.get_or_create("orders", 0)
    assert read_all(queue) == rows(0, covered)
    queue.append(covered, rows(covered, 5))
    flush(queues)
    again = queues_on(fs)
    again.restore(queues.lengths())
    assert read_all(again.get_or_create("orders", 0)) == rows(0, covered + 5)


def test_a_start_looks_at_the_files_of_no_queue(fs: SimulatedFileSystem) -> None:
    """There may be very many queues."""
    queues = queues_on(fs)
    for queue_id in range(20):
        queues.get_or_create("orders", queue_id).append(0, rows(0, 10))
    flush(queues)
    touched: list[str] = []
    fs.on_call = lambda _operation, path: touched.append(path)
    queues_on(fs).restore([("orders", queue_id, 0, 7) for queue_id in range(20)])
    fs.on_call = None
    assert touched
    assert [path for path in touched if path.startswith(f"{DIRECTORY}/orders/")] == []


def test_leftovers_are_cut_before_new_rows_are_written(fs: SimulatedFileSystem) -> None:
    flushed(fs, 30)
    queues = queues_on(fs)
    queues.restore([("orders", 0, 0, 7)])
    queue = queues.get_or_create("orders", 0)
    assert (queue.end_offset, read_all(queue)) == (7, rows(0, 7))
    queue.append(7, rows(7, 2))
    flush(queues)
    assert b"".join(fs.visible_bytes(path) for path in row_files(fs)) == rows(0, 9)


def test_rows_missing_below_a_checkpoint_are_damage(fs: SimulatedFileSystem) -> None:
    flushed(fs, 10)
    path = f"{QUEUE}/{160:020d}"
    fs.cut(path, 25)
    queues = queues_on(fs)
    queues.restore([("orders", 0, 0, 10)])
    with pytest.raises(DamagedError) as caught:
        queues.get_or_create("orders", 0).read(9, 1)
    assert (caught.value.path, caught.value.position) == (path, 25)


def test_a_file_missing_below_a_checkpoint_is_damage_when_it_is_read(
    fs: SimulatedFileSystem,
) -> None:
    flushed(fs, 10)
    fs.vanish(f"{QUEUE}/{80:020d}")
    queues = queues_on(fs)
    queues.restore([("orders", 0, 0, 10)])
    with pytest.raises(DamagedError, match="00080, byte 0: the file is missing"):
        queues.get_or_create("orders", 0).read(4, 1)


def test_a_file_that_cannot_be_read_is_damage_and_no_error_of_the_operating_system(
    fs: SimulatedFileSystem,
) -> None:
    """Who asks for an offset on the event loop lets damage be told, and nothing else."""
    queue = flushed(fs, 5).get("orders", 0)
    assert queue is not None
    fs.inject(Fault(1, errno.EIO, operations=("pread",)))
    with pytest.raises(DamagedError, match="cannot be read"):
        queue.read(0, 1)
    assert queue.read(0, 1) == row(0)


def test_queues_that_a_checkpoint_does_not_list_are_removed(fs: SimulatedFileSystem) -> None:
    queues = flushed(fs, 3)
    queues.get_or_create("bills", 1).append(0, rows(0, 1))
    flush(queues)
    again = queues_on(fs)
    again.restore([("orders", 0, 0, 3)])
    job = again.begin_flush()
    job.run()
    assert [path for path in fs.files() if "bills" in path] == []
    again.get_or_create("bills", 1).append(0, rows(5, 1))  # before the loop hears of the end
    job.finish()
    flush(again)
    assert fs.visible_bytes(f"{DIRECTORY}/bills/1/{0:020d}") == rows(5, 1)


@pytest.mark.parametrize("operation", [None, "list_directory", "remove"])
def test_a_queue_that_the_log_brings_again_has_none_of_its_old_rows(
    fs: SimulatedFileSystem, operation: str | None
) -> None:
    """Also if a flush fails, as it does for a lack of descriptors."""
    queues = queues_on(fs)
    queues.get_or_create("orders", 0).append(0, rows(0, 11))
    flush(queues)
    again = queues_on(fs)
    again.restore([])
    queue = again.get_or_create("orders", 0)
    queue.append(0, rows(20, 1))
    if operation is not None:
        fs.inject(Fault(1, operations=(operation,)))
        with pytest.raises(OSError, match="Input/output"):
            again.begin_flush().run()
    flush(again)
    assert read_all(queue) == fs.visible_bytes(f"{QUEUE}/{0:020d}") == rows(20, 1)
    assert len(row_files(fs)) == 1


def test_many_queues_are_read_with_few_open_files(fs: SimulatedFileSystem) -> None:
    queues = queues_on(fs, open_max=2)
    for queue_id in range(8):
        queues.get_or_create("orders", queue_id).append(0, rows(0, 6))
    flush(queues)
    for _ in range(2):
        for queue in queues.all():
            assert read_all(queue) == rows(0, 6)


def test_the_least_recently_used_file_is_closed_first(fs: SimulatedFileSystem) -> None:
    for name in "abc":
        fs.open(f"/{name}", create=True)
    files = OpenFiles(fs, 2)
    first = files.get("/a")
    files.get("/b")
    assert files.get("/a") is first
    files.get("/c")
    assert files.get("/a") is first


def test_expiry_removes_files_of_which_no_row_is_needed(fs: SimulatedFileSystem) -> None:
    queues = flushed(fs, 10)
    queues.expire(1000 + 10 * 8 + 1)
    assert [path for path in fs.files() if path.startswith(QUEUE)] == [f"{QUEUE}/{160:020d}"]
    queue = queues.get_or_create("orders", 0)
    assert (queue.first_offset, read_all(queue)) == (9, rows(9, 1))
    assert queue.read(8, 1) == b""


@pytest.mark.parametrize("on_disk", [False, True])
def test_the_row_of_a_trimmed_message_can_be_read(fs: SimulatedFileSystem, on_disk: bool) -> None:
    queues = flushed(fs, 10) if on_disk else queues_on(fs)
    queue = queues.get_or_create("orders", 0)
    queue.append(queue.end_offset, rows(queue.end_offset, 12 - queue.end_offset))
    queue.first_offset = 11
    assert [queue.read_trimmed(offset) for offset in range(11)] == [row(at) for at in range(11)]
    assert [queue.read_trimmed(offset) for offset in (-1, 11, 12)] == [b""] * 3


@pytest.mark.parametrize("how", ["removed", "wrong"])
def test_the_row_of_a_trimmed_message_that_is_there_no_more_is_no_damage(
    fs: SimulatedFileSystem, how: str
) -> None:
    queues = flushed(fs, 10)
    damaged: list[int] = []
    queues.tell_damage(damaged.append)
    queue = queues.get_or_create("orders", 0)
    queue.first_offset = 8
    if how == "removed":
        queue.release(8)
    else:
        file = fs.open(f"{QUEUE}/{0:020d}")
        file.pwrite(bytes(4 * ROW_SIZE), 0)
        file.close()
    assert queue.read_trimmed(2) == b""
    assert damaged == []


def test_lengths_come_in_order(fs: SimulatedFileSystem) -> None:
    queues = queues_on(fs)
    for topic, queue_id in (("b", 10), ("b", 9), ("a", 3)):
        queues.get_or_create(topic, queue_id).append(0, rows(0, queue_id))
    assert queues.lengths() == [("a", 3, 0, 3), ("b", 9, 0, 9), ("b", 10, 0, 10)]


def test_a_deleted_topic_is_gone_with_its_files(fs: SimulatedFileSystem) -> None:
    queues = flushed(fs, 5)
    queues.delete("orders")
    assert queues.get("orders", 0) is None
    assert [path for path in fs.files() if path.startswith(QUEUE)] == []
