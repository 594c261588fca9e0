"""The executor of the tests: disk work without a thread."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class FakeExecutor:
    """Works at once, after some ``seconds``, or when the test says so. Answers in the next turn of
    the loop, after ``seconds`` with the work, or at once where there is no loop."""

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
        """From now on nothing is done."""
        self._holds = True

    def work(self, jobs: int) -> None:
        """The first of what was held back is done."""
        for _ in range(jobs):
            self._held.popleft()()

    def drain(self) -> None:
        """All that was held back is done, and then what came of it, in order."""
        while self._held:
            self.work(1)

    def release(self) -> None:
        """All that was held back is done, and what comes from now on at once."""
        self._holds = False
        self.work(len(self._held))

    def close(self) -> None:
        """Nothing to stop."""
