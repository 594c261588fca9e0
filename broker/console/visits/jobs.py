"""Changes in progress. They continue even if the browser is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from itertools import count

from broker.client.errors import ClientError
from broker.command_error import CommandError
from broker.limits import CONSOLE
from broker.remoting.protocol.errors import CallError
from dledger.errors import ProposeError
from store.errors import StoreError
from store.quoting import shortened

AT_ONCE_SECONDS = 1.5
"""How long an answer waits for the end of a change, in seconds."""

FAILURES = (CommandError, CallError, ClientError, ProposeError, StoreError, OSError, ValueError)
"""Errors of a cluster; any other error is a bug of this program."""


@dataclass(slots=True)
class Job:
    """One change."""

    number: int
    title: str
    owner: str
    """The account that asked. Only it may see the job."""
    task: asyncio.Task[str]
    leads_to: str = ""
    """The page to show afterwards; empty: the same page."""

    @property
    def done(self) -> bool:
        return self.task.done()

    @property
    def outcome(self) -> tuple[bool, str]:
        """Whether it succeeded, and the text about it, once it is done."""
        if self.task.cancelled():
            return False, "this node stopped before the end; what is done stays"
        error = self.task.exception()
        if error is None:
            return True, self.task.result()
        if isinstance(error, FAILURES):
            return False, told(error)
        raise error


class Jobs:
    """The changes that this node has begun for browsers."""

    def __init__(self) -> None:
        self._jobs: dict[int, Job] = {}
        self._numbers = count(1)

    async def begin(self, title: str, owner: str, work: Coroutine[None, None, str]) -> Job:
        """Starts a change; returns once it is done, or after a moment. Raises
        :class:`~broker.command_error.CommandError` if too many are in progress."""
        done = [number for number, each in self._jobs.items() if each.done]
        for number in done[: max(len(self._jobs) + 1 - CONSOLE.changes_max, 0)]:
            del self._jobs[number]
        if len(self._jobs) >= CONSOLE.changes_max:
            work.close()
            raise CommandError(f"{len(self._jobs)} changes are in progress; try again later")
        task = asyncio.ensure_future(work)
        task.add_done_callback(_retrieved)
        job = Job(next(self._numbers), title, owner, task)
        self._jobs[job.number] = job
        await asyncio.wait([task], timeout=AT_ONCE_SECONDS)
        return job

    def find(self, number: int, owner: str) -> Job | None:
        job = self._jobs.get(number)
        return job if job is not None and job.owner == owner else None

    async def close(self) -> None:
        """Cancels the changes in progress."""
        tasks = [job.task for job in self._jobs.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def told(error: BaseException) -> str:
    """The text of a failure for the page."""
    text = str(error) or type(error).__name__
    return shortened(text.removeprefix("AclException: "))


def _retrieved(task: asyncio.Task[str]) -> None:
    if not task.cancelled():
        task.exception()
