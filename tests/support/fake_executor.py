"""The executor of the tests: disk work without a thread."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class FakeExecutor:
    """Does work at once, after ``seconds``, or when the test says it.

    It answers in the next turn of the loop; after ``seconds`` together with the work; or at once
    without a loop.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop | None = None, *, seconds: float = 0.0
    ) -> None:
        self._loop = loop
        self._seconds = seconds
        self._holds = False
        self._held: deque[Callable[[], None]] = deque()

    def submit(
        self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]
    ) -> None:
        def job() -> None:
            result: T | None = None
            failure: BaseException | None = None
            try:
                result = work()
            except Exception as error:  # noqa: BLE001 - handed to `done`, as the real one does
                failure = error
            if self._loop is None or self._seconds:
                done(result, failure)
            else:
                self._loop.call_soon(done, result, failure)

        if self._holds:
            self._held.append(job)
        elif self._loop is not None and self._seconds:
            self._loop.call_later(self._seconds, job)
        else:
            job()

    def hold(self) -> None:
        """From now on work is held back."""
        self._holds = True

    def work(self, jobs: int) -> None:
        """Does the first jobs that were held back."""
        for _ in range(jobs):
            self._held.popleft()()

    def drain(self) -> None:
        """Does all that was held back, and what comes of it, in order."""
        while self._held:
            self.work(1)

    def release(self) -> None:
        """Does all that was held back. New work is done at once."""
        self._holds = False
        self.work(len(self._held))

    def close(self) -> None:
        """Does nothing."""
