"""What a flush of ConsumeQueues makes durable."""

from __future__ import annotations

import pytest

from simulator.engine.disk import Fault, SimulatedFileSystem
from store.index.consume_queues import BARRIER_QUEUES
from tests.store.index.small_queues import (
    DIRECTORY,
    QUEUE,
    ROWS_PER_FILE,
    flush,
    flushed,
    queues_on,
    read_all,
    row_files,
    rows,
)
from tests.store.small_logs import simulated


@pytest.fixture
def fs() -> SimulatedFileSystem:
    return simulated()


def test_rows_appended_during_a_flush_stay_in_memory(fs: SimulatedFileSystem) -> None:
    queues = queues_on(fs)
    queue = queues.get_or_create("orders", 0)
    queue.append(0, rows(0, 3))
    job = queues.begin_flush()
    queue.append(3, rows(3, 3))
    job.run()
    assert job.lengths() == [("orders", 0, 0, 3)]
    assert read_all(queue) == rows(0, 6)
    job.finish()
    assert read_all(queue) == rows(0, 6)
    assert (queue.flushed_end, queue.end_offset) == (3, 6)


def test_nothing_to_flush_is_no_work_for_the_disk(fs: SimulatedFileSystem) -> None:
    queues = flushed(fs, 3)
    calls = fs.calls
    flush(queues)
    assert fs.calls == calls


@pytest.mark.parametrize("count", [BARRIER_QUEUES - 1, BARRIER_QUEUES, 300])
def test_queues_are_durable_after_a_flush_however_many_they_are(count: int) -> None:
    fs = simulated(7)
    queues = queues_on(fs)
    for queue_id in range(count):
        queues.get_or_create("orders", queue_id).append(0, rows(0, ROWS_PER_FILE + 1))
    lengths = queues.lengths()
    syncs: list[str] = []
    fs.on_call = lambda operation, _path: syncs.append(operation) if "sync" in operation else None
    flush(queues)
    assert len(syncs) <= 4 * BARRIER_QUEUES
    fs.on_call = None
    fs.power_loss(keep=0)
    again = queues_on(fs)
    again.restore(lengths)
    for queue in again.all():
        assert read_all(queue) == rows(0, ROWS_PER_FILE + 1)


def test_a_file_that_a_dead_process_has_left_is_durable_after_the_next_flush() -> None:
    fs = simulated(7)
    queues = queues_on(fs)
    queues.get_or_create("orders", 0).append(0, rows(0, 2))
    fs.inject(Fault(1, operations=("sync_directory",)))
    with pytest.raises(OSError, match="Input/output"):
        flush(queues)
    fs.crash()
    again = queues_on(fs)
    again.get_or_create("orders", 0).append(0, rows(0, 2))
    flush(again)
    fs.power_loss(keep=0)
    assert row_files(fs)


def test_a_directory_is_synced_once_by_a_process() -> None:
    fs = simulated(7)
    queues = queues_on(fs)
    queue = queues.get_or_create("orders", 0)
    queue.append(0, rows(0, 1))
    flush(queues)
    queue.append(1, rows(1, 1))
    synced: list[str] = []
    fs.on_call = lambda operation, path: (
        synced.append(path) if operation == "sync_directory" else None
    )
    flush(queues)
    assert QUEUE not in synced


def test_the_first_flush_over_what_a_dead_process_made_syncs_the_names_of_its_directories() -> None:
    fs = simulated(7)
    queues = queues_on(fs)
    for queue_id in range(BARRIER_QUEUES):
        queues.get_or_create("orders", queue_id).append(0, rows(0, 1))
    fs.inject(Fault(1, operations=("sync_all",)))
    with pytest.raises(OSError, match="Input/output"):
        flush(queues)
    again = queues_on(fs)
    again.restore([])
    synced: list[str] = []
    fs.on_call = lambda operation, path: (
        synced.append(path) if operation == "sync_directory" and path in QUEUE else None
    )
    for offset in range(2):
        again.get_or_create("orders", 0).append(offset, rows(offset, 1))
        flush(again)
    assert synced == [QUEUE, f"{DIRECTORY}/orders", DIRECTORY]


@pytest.mark.parametrize("name", ["x", "²", "12"])
def test_a_file_in_the_place_of_a_queue_is_removed(name: str) -> None:
    fs = simulated(7)
    flushed(fs, 1)
    fs.open(f"{DIRECTORY}/orders/{name}", create=True).close()
    again = queues_on(fs)
    again.restore([("orders", 0, 0, 1)])
    flush(again)
    assert [path for path in fs.files() if path.startswith(f"{DIRECTORY}/orders/")] == row_files(fs)
