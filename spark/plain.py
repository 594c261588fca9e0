"""The audit's check in processes without Spark: what the benchmark compares Spark with."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from functools import cache, partial

from store.osfiles import OsFileSystem
from store.verify import Buffers, GroupPlan, RangeResult, check_range


@contextmanager
def plain_workers(count: int) -> Iterator[Executor]:
    """So many processes, which have loaded by then what a check needs."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count, mp_context=context) as pool:
        for _ in pool.map(load, range(count)):
            pass
        yield pool


def check_plain(pool: Executor, group: GroupPlan) -> list[RangeResult]:
    """All ranges of a group."""
    return list(pool.map(partial(check_one, group), range(len(group.ranges))))


def load(_number: int) -> int:
    return id(buffers())


@cache
def buffers() -> Buffers:
    return Buffers()


def check_one(group: GroupPlan, number: int) -> RangeResult:
    return check_range(OsFileSystem(), group, number, buffers())
