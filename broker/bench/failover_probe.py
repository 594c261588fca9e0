"""A client that sends all the time, to measure its wait when a leader dies."""

from __future__ import annotations

import asyncio
import time
from random import Random

from broker.bench.jobs import ProbeJob
from broker.client.message import Message
from broker.client.producer.producer import Producer

PAUSE_SECONDS = 0.002
"""The seconds between two messages; a few hundred a second."""


class Probe:
    """Sends one message after the other; each is retried until it is acknowledged."""

    def __init__(self, producer: Producer, job: ProbeJob, rng: Random) -> None:
        self._producer = producer
        self._message = Message(job.topic, rng.randbytes(job.size))
        self._loop = asyncio.get_running_loop()
        self._asked: list[tuple[float, asyncio.Future[float]]] = []
        self._task = self._loop.create_task(self._run())
        self._task.add_done_callback(self._ended)

    async def first_after(self, moment: float) -> float:
        """The time (``time.perf_counter``) at which the first message sent after ``moment`` was
        acknowledged. Raises the error that ended the sending, if that comes first."""
        answer: asyncio.Future[float] = self._loop.create_future()
        if self._task.done():
            self._task.result()
        self._asked.append((moment, answer))
        return await answer

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (failure := task.exception()) is not None:
            for _, answer in self._asked:
                answer.set_exception(failure)

    async def _run(self) -> None:
        while True:
            sent_at = time.perf_counter()
            await self._producer.send(self._message)
            acknowledged_at = time.perf_counter()
            waiting: list[tuple[float, asyncio.Future[float]]] = []
            for moment, answer in self._asked:
                if sent_at > moment:
                    answer.set_result(acknowledged_at)
                else:
                    waiting.append((moment, answer))
            self._asked = waiting
            await asyncio.sleep(PAUSE_SECONDS)
