"""Runs the tasks of a check as Spark jobs.

The tasks of all groups are in one job, so that all cores have work. A job has a row for each task.
The plans of the groups go to the executors once, and a task unpacks the plan of its own group.
Nothing is shuffled.
"""

from __future__ import annotations

import gc
import pickle
from collections.abc import Callable, Iterator, Sequence
from functools import cache

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from spark.remote_file_system import open_file_system
from store.io.filesystem import ReadableFileSystem
from store.verify import Buffers
from store.verify.plan.task_runner import Result, Shared, Task

RESULT_SCHEMA = "number bigint, result binary"
JOB_BYTES = 64 << 20
"""The limit for the payloads of a job in bytes, because each executor gets all of them."""
JOB_TASKS = 100_000


class SparkRun:
    """Runs tasks on the executors; ``root`` is a path or URL of their file system."""

    def __init__(self, session: SparkSession, root: str) -> None:
        self._session = session
        self._root = root

    def __call__(
        self,
        check: Callable[[ReadableFileSystem, Shared, Task, Buffers], Result],
        shared: Sequence[Shared],
        tasks: Sequence[tuple[int, Task]],
    ) -> list[Result]:
        """The results in the order of the tasks. A single task runs in this process: a job would
        cost more."""
        if len(tasks) > 1:
            return self.on_executors(check, shared, tasks)
        fs, _ = open_file_system(self._root)
        return [check(fs, shared[number], task, buffers()) for number, task in tasks]

    def on_executors(
        self,
        check: Callable[[ReadableFileSystem, Shared, Task, Buffers], Result],
        shared: Sequence[Shared],
        tasks: Sequence[tuple[int, Task]],
    ) -> list[Result]:
        """As :meth:`__call__`, but always on the executors."""
        packed = [(number, pickle.dumps(task)) for number, task in tasks]
        parts = [pickle.dumps(part) for part in shared]
        results: list[Result] = []
        for some in jobs(packed):
            rows = self.frame(check, parts, some).collect()
            found = {row["number"]: row["result"] for row in rows}
            results += [pickle.loads(found[number]) for number in range(len(some))]
        return results

    def frame(
        self,
        check: Callable[[ReadableFileSystem, Shared, Task, Buffers], Result],
        shared: Sequence[bytes],
        tasks: Sequence[tuple[int, bytes]],
    ) -> DataFrame:
        """A frame with a row for each task. Spark shuffles nothing for it."""
        count = len(tasks)
        numbers = self._session.range(0, count, 1, count)
        return numbers.mapInArrow(run_tasks(self._root, check, shared, tasks), RESULT_SCHEMA)


def jobs(tasks: Sequence[tuple[int, bytes]]) -> Iterator[Sequence[tuple[int, bytes]]]:
    """Splits tasks into jobs."""
    begin = size = 0
    for number, (_, task) in enumerate(tasks):
        if number > begin and (size + len(task) > JOB_BYTES or number - begin == JOB_TASKS):
            yield tasks[begin:number]
            begin, size = number, 0
        size += len(task)
    if begin < len(tasks):
        yield tasks[begin:]


def run_tasks(
    root: str,
    check: Callable[[ReadableFileSystem, Shared, Task, Buffers], Result],
    shared: Sequence[bytes],
    tasks: Sequence[tuple[int, bytes]],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function of a Spark task. It goes to the executors with the shared data."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if not gc.get_freeze_count():
            # Spark collects garbage after each task. Loaded modules need no collection.
            gc.freeze()
        fs, _ = open_file_system(root)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                of, task = tasks[number]
                result = check(fs, pickle.loads(shared[of]), pickle.loads(task), buffers())
                yield pa.RecordBatch.from_pydict(
                    {
                        "number": pa.array([number], pa.int64()),
                        "result": pa.array([pickle.dumps(result)], pa.binary()),
                    }
                )

    return run


@cache
def buffers() -> Buffers:
    """The buffers of this worker. It runs many tasks, one at a time."""
    return Buffers()
