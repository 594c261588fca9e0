"""What a check asks of a file system: tasks of the same size ask for the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from store.index.consume_queues import ConsumeQueues
from store.io.filesystem import ReadableFileSystem
from store.message.batch import QueueRun
from store.verify import Buffers, GroupPlan, check_range, finish_audit, plan_audit
from store.verify.derived_files import check_derived
from store.verify.index import file_tasks
from store.verify.plan import range_borders
from store.verify.plan.ranges import RangeResult
from store.verify.plan.task_runner import Result, Shared, Task
from tests.store.counting_file_system import BYTES, LISTS, OPENS, READS, CountingFileSystem
from tests.store.sample_replica import SEGMENT_SIZE, Replica, message
from tests.store.small_logs import simulated

NODES = ("n0", "n1", "n2")
ENTRIES = 240
RANGE_BYTES = 3 * SEGMENT_SIZE


def write_snapshots(queues: int, checkpoints: int) -> tuple[CountingFileSystem, list[str]]:
    """The same messages in so many queues, of a file each, their keys in so many files."""
    fs = simulated()
    directories = []
    for node in NODES:
        replica = Replica(fs, node)
        replica.queues = ConsumeQueues(fs, f"{replica.directory}/consumequeue")
        replica.no_op()
        for number in range(1, ENTRIES + 1):
            offset = 2 * ((number - 1) // queues)
            some = [message(number % 10 + 10 * each) for each in (1, 2)]
            replica.send([QueueRun("orders", (number - 1) % queues, offset, some)])
            if number % (ENTRIES // checkpoints) == 0:
                replica.checkpoint()
        directories.append(f"/snap/{node}")
        for _ in replica.store.begin_snapshot(directories[-1], 0).steps():
            pass
        replica.close()
    return CountingFileSystem(fs), directories


class Counted:
    """Runs tasks one by one, and keeps what each has asked for."""

    def __init__(self, fs: CountingFileSystem) -> None:
        self._fs = fs
        self.tasks: dict[str, list[Counter[str]]] = {}

    def __call__(
        self,
        check: Callable[[ReadableFileSystem, Shared, Task, Buffers], Result],
        shared: Sequence[Shared],
        tasks: Sequence[tuple[int, Task]],
    ) -> list[Result]:
        results = []
        for number, task in tasks:
            with self._fs.counted() as asked:
                results.append(check(self._fs, shared[number], task, Buffers()))
            self.tasks.setdefault(check.__name__, []).append(asked)
        return results


def audit(queues: int, checkpoints: int) -> tuple[GroupPlan, Counted, Counter[str]]:
    """The plan, what tasks have asked for, and what the end has."""
    fs, directories = write_snapshots(queues, checkpoints)
    counted = Counted(fs)
    plan = plan_audit(fs, directories, RANGE_BYTES, counted)
    (group,) = plan.groups
    numbers = [(0, number) for number in range(len(group.ranges))]
    results: list[RangeResult] = counted(check_range, [group.for_ranges()], numbers)
    (derived,) = check_derived(fs, counted, [group], [results])
    with fs.counted() as at_the_end:
        assert finish_audit(fs, group, results, derived) == []
    assert sum(result.messages for result in derived.results) == 2 * ENTRIES
    return group, counted, at_the_end


@pytest.fixture(scope="module")
def few() -> tuple[GroupPlan, Counted, Counter[str]]:
    return audit(2, 2)


@pytest.mark.parametrize(("queues", "checkpoints"), [(60, 2), (2, 40), (60, 40)])
def test_ranges_ask_for_the_same_however_many_queues_and_key_files_there_are(
    few: tuple[GroupPlan, Counted, Counter[str]], queues: int, checkpoints: int
) -> None:
    _, expected, at_the_end = few
    group, found, then = audit(queues, checkpoints)
    assert len(group.ranges) > 3
    assert found.tasks["check_range"] == expected.tasks["check_range"]
    assert all(asked[LISTS] == 0 for asked in found.tasks["check_range"])
    # The checkpoint is read again, which is longer for more queues.
    assert {**then, BYTES: 0} == {**at_the_end, BYTES: 0}
    assert "read_again" not in found.tasks


def test_more_files_are_more_tasks_and_each_is_opened_twice_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(file_tasks, "FILES_AT_ONCE", 8)
    for queues, checkpoints in ((2, 2), (60, 40)):
        _, found, _ = audit(queues, checkpoints)
        tasks = found.tasks["check_files"]
        assert all(asked[LISTS] == 0 for asked in tasks)
        # Of a queue's file the size and the rows, and its seals; of a file of keys header, page
        # table and rows.
        assert all(asked[OPENS] <= 2 * 8 for asked in tasks)
        assert all(asked[READS] <= 3 * 8 for asked in tasks)
        assert len(tasks) >= 3 * (queues + checkpoints) // 8


def test_a_whole_check_lists_each_directory_of_log_and_derived_files_once() -> None:
    fs, directories = write_snapshots(2, 2)
    (group,) = plan_audit(fs, directories, RANGE_BYTES).groups
    results = [check_range(fs, group, number) for number in range(len(group.ranges))]
    assert finish_audit(fs, group, results) == []
    for path in group.listing:
        is_small = path in directories or path.endswith("/state")
        assert fs.listed[path] == 1 or is_small, path
    assert len(group.listing) > 3 * len(directories)


def test_a_border_costs_a_few_reads_however_long_the_entry_index_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(range_borders, "BLOCK_ROWS", 8)
    fs, directories = write_snapshots(2, 2)
    for range_bytes in (SEGMENT_SIZE, 3 * SEGMENT_SIZE):
        with fs.counted() as asked:
            (group,) = plan_audit(fs, directories, range_bytes).groups
        per_border = asked[READS] / len(NODES) / len(group.ranges)
        assert per_border < 8, (asked, len(group.ranges))
        assert asked[BYTES] < 4096 * asked[READS]
