"""The check of the audit in processes without Spark, for comparison.

One process also reads the same files with a CRC32C over them, as ``cat | crc32c`` would. No check
can take less.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from time import process_time

from crc32c import crc32c

from spark.datasource.data_source import plan_parts, read_part
from spark.datasource.options import parse_options
from spark.datasource.snapshots import find_snapshots
from store.io.filesystem import ReadableFileSystem
from store.io.os_filesystem import OsFileSystem
from store.verify import Buffers, GroupPlan, RangeResult, check_range
from store.verify.derived_files import check_derived
from store.verify.plan.task_runner import Result, Shared, Task, TaskRunner, run_here

ROW_PARTS = 4
"""How many parts of the view are read to measure the cost of a row."""


@contextmanager
def plain_workers(count: int) -> Iterator[Executor]:
    """A pool of ``count`` processes that have loaded the check's modules."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count, mp_context=context) as pool:
        for _ in pool.map(load, range(count)):
            pass
        yield pool


def check_plain(pool: Executor, group: GroupPlan) -> list[RangeResult]:
    """Checks all ranges of a group, and its derived files."""

    def run(
        check: Callable[[ReadableFileSystem, Shared, Task, Buffers], Result],
        shared: Sequence[Shared],
        tasks: Sequence[tuple[int, Task]],
    ) -> list[Result]:
        parts = (shared[number] for number, _ in tasks)
        return list(pool.map(partial(check_one, check), parts, (task for _, task in tasks)))

    return check_all(run, group)


def check_all(run: TaskRunner, group: GroupPlan) -> list[RangeResult]:
    lean = group.for_ranges()
    results = run(check_range, [lean], [(0, number) for number in range(len(group.ranges))])
    (derived,) = check_derived(OsFileSystem(), run, [group], [results])
    return derived.results


def load(_number: int) -> int:
    return id(buffers())


@cache
def buffers() -> Buffers:
    return Buffers()


def check_one(
    check: Callable[[ReadableFileSystem, Shared, Task, Buffers], Result], shared: Shared, task: Task
) -> Result:
    return check(OsFileSystem(), shared, task, buffers())


@dataclass(frozen=True, slots=True)
class Cost:
    """A number of bytes or rows, and their CPU time in seconds."""

    amount: int
    cpu_seconds: float


def check_cost(group: GroupPlan) -> Cost:
    """The cost of the check of all ranges and derived files in this process.

    Bytes are those of the log of all replicas.
    """
    run = run_here(OsFileSystem(), buffers())
    began = process_time()
    size = sum(result.bytes_read for result in check_all(run, group))
    return Cost(size, process_time() - began)


def read_cost(group: GroupPlan) -> Cost:
    """The cost of reading all files of the replicas in this process, with a CRC32C over them."""
    view = memoryview(buffers().piece.octets)
    began = process_time()
    size = 0
    for path in files_of(group):
        with open(path, "rb", buffering=0) as file:
            crc = 0
            while count := file.readinto(view):
                crc = crc32c(view[:count], crc)
                size += count
    return Cost(size, process_time() - began)


def files_of(group: GroupPlan) -> Iterator[str]:
    for replica in group.replicas:
        for directory, _, names in os.walk(replica.directory):
            yield from (f"{directory}/{name}" for name in names)


def row_cost(directory: str, columns: str) -> Cost:
    """The cost of reading the view ``messages`` of one snapshot into Arrow columns in this process.

    ``columns``: the wanted ones, with commas between; empty for all.
    """
    options = parse_options({"view": "messages"} | ({"columns": columns} if columns else {}))
    parts = plan_parts(find_snapshots([directory]), options)[:ROW_PARTS]
    began = process_time()
    rows = sum(len(batch) for part in parts for batch in read_part(part, options))
    return Cost(rows, process_time() - began)
