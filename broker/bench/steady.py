"""A steady load: messages leave at a fixed rate, whether or not earlier ones are acknowledged.

A closed loop waits with the server, so it does not see how long a pause of the server is for a
client that comes meanwhile. Here a latency counts from the moment at which the message was due.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle
from random import Random

from broker.bench.jobs import SteadyJob
from broker.bench.process_usage import memory_bytes, usage
from broker.bench.results import SteadyRound, percentiles_ms
from broker.client.errors import ClientError
from broker.client.message import Message, SendResult
from broker.client.producer.producer import Producer

TICK_SECONDS = 0.001
BEHIND_SECONDS_MAX = 10.0
"""The load ends with an error if so much of it is not acknowledged."""


class FallsBehindError(ClientError):
    """The cluster does not take messages at this rate."""


async def send_steadily(producer: Producer, job: SteadyJob, rng: Random) -> list[SteadyRound]:
    """The rounds of the job, without pauses."""
    body = rng.randbytes(job.size)
    await OpenLoop(producer, job.topics, body, job.rate).run(job.warm_up_seconds)
    return [await _round(producer, job, body) for _ in range(job.rounds)]


async def _round(producer: Producer, job: SteadyJob, body: bytes) -> SteadyRound:
    load = OpenLoop(producer, job.topics, body, job.rate)
    servers, client_cpu, began = usage(job.pids), time.process_time(), time.perf_counter()
    await load.run(job.seconds)
    seconds = time.perf_counter() - began
    client_cpu = time.process_time() - client_cpu
    servers = usage(job.pids).since(servers)
    p50, p99, p999, longest = percentiles_ms(load.latencies, 0.5, 0.99, 0.999, 1.0)
    return SteadyRound(
        began,
        len(load.latencies),
        seconds,
        p50,
        p99,
        p999,
        longest,
        servers.cpu_seconds,
        client_cpu,
        memory_bytes(job.pids),
    )


class OpenLoop:
    """Sends single messages to the topics in turn."""

    def __init__(
        self,
        producer: Producer,
        topics: Sequence[str],
        body: bytes,
        rate: float,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """``rate``: messages a second. ``clock`` gives seconds."""
        self._clock = clock
        self._producer = producer
        self._messages = cycle([Message(topic, body) for topic in topics])
        self._rate = rate
        self._loop = asyncio.get_running_loop()
        self._began = 0.0
        self._count = self._sent = 0
        self._ended: asyncio.Future[None]
        self.latencies: list[float] = []
        """Of each acknowledged message, in seconds since it was due."""

    async def run(self, seconds: float) -> None:
        """Sends for so long; returns once all is acknowledged.

        Raises :class:`FallsBehindError`, or the error of a message that was not acknowledged.
        """
        self._count = max(1, int(seconds * self._rate))
        self._began = self._clock()
        self._ended = self._loop.create_future()
        self._tick()
        await self._ended

    def _tick(self) -> None:
        if self._ended.done():
            return
        due = min(self._count, int((self._clock() - self._began) * self._rate) + 1)
        for number in range(self._sent, due):
            answer = self._producer.send_nowait(next(self._messages))
            answer.add_done_callback(partial(self._answered, self._began + number / self._rate))
        self._sent = due
        behind = due - len(self.latencies)
        if behind > self._rate * BEHIND_SECONDS_MAX:
            self._fail(FallsBehindError(f"{behind} messages are not acknowledged"))
        elif due < self._count:
            self._loop.call_later(TICK_SECONDS, self._tick)

    def _answered(self, due_at: float, answer: asyncio.Future[SendResult]) -> None:
        failure = answer.exception()
        if failure is not None:
            self._fail(failure)
            return
        self.latencies.append(self._clock() - due_at)
        if len(self.latencies) == self._count and not self._ended.done():
            self._ended.set_result(None)

    def _fail(self, failure: BaseException) -> None:
        if not self._ended.done():
            self._ended.set_exception(failure)
