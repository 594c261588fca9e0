"""The audit's check in processes without Spark: what the benchmark compares Spark with."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from functools import cache, partial

from store.filesystem import Readable
from store.osfiles import OsFileSystem
from store.verify import Buffers, GroupPlan, RangeResult, check_range
from store.verify.derivedfiles import check_derived
from store.verify.running import Result, Shared, Task


@contextmanager
def plain_workers(count: int) -> Iterator[Executor]:
    """So many processes, which have loaded by then what a check needs."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count, mp_context=context) as pool:
        for _ in pool.map(load, range(count)):
            pass
        yield pool


def check_plain(pool: Executor, group: GroupPlan) -> list[RangeResult]:
    """All ranges of a group, and the files derived from its log."""

    def run(
        check: Callable[[Readable, Shared, Task, Buffers], Result],
        shared: Sequence[Shared],
        tasks: Sequence[tuple[int, Task]],
    ) -> list[Result]:
        parts = (shared[number] for number, _ in tasks)
        return list(pool.map(partial(check_one, check), parts, (task for _, task in tasks)))

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
    check: Callable[[Readable, Shared, Task, Buffers], Result], shared: Shared, task: Task
) -> Result:
    return check(OsFileSystem(), shared, task, buffers())
