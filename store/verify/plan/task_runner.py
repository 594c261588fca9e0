"""Runs the tasks of a check: in this process, one after the other, or in Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from store.io.filesystem import ReadableFileSystem
from store.verify.files.read_buffers import Buffers

Shared = TypeVar("Shared")
Task = TypeVar("Task")
Result = TypeVar("Result")


class TaskRunner(Protocol):
    """Runs tasks. A task is the number of an item of ``shared``, and a payload."""

    def __call__(
        self,
        check: Callable[[ReadableFileSystem, Shared, Task, Buffers], Result],
        shared: Sequence[Shared],
        tasks: Sequence[tuple[int, Task]],
    ) -> list[Result]: ...


def run_here(fs: ReadableFileSystem, buffers: Buffers | None = None) -> TaskRunner:
    """Runs tasks one after the other, in this process."""
    held = buffers or Buffers()

    def run(
        check: Callable[[ReadableFileSystem, Shared, Task, Buffers], Result],
        shared: Sequence[Shared],
        tasks: Sequence[tuple[int, Task]],
    ) -> list[Result]:
        return [check(fs, shared[number], task, held) for number, task in tasks]

    return run
