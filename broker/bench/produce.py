"""A closed loop of sends: a fixed number is in progress, and each acknowledgement starts the
next."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from itertools import cycle
from random import Random
from typing import Protocol

from broker.bench.jobs import FillJob, FloorJob, HttpJob, LoadShape, ProduceJob
from broker.bench.process_usage import usage
from broker.bench.results import Round, percentiles_ms
from broker.client.message import Message, SendResult
from broker.client.producer.producer import Producer


async def produce(producer: Producer, job: ProduceJob, rng: Random) -> list[Round]:
    """See :func:`measure`."""
    return await measure(ClosedLoop(producer, job.topics, job.shape, rng.randbytes(job.size)), job)


class Load(Protocol):
    """Sends messages in a loop."""

    latencies: list[float]
    """The latency of each acknowledged request, in seconds."""

    async def run(self, seconds: float) -> int:
        """Sends for so long; returns how many messages were acknowledged, which is all of them."""


async def measure(load: Load, job: ProduceJob | FloorJob | HttpJob) -> list[Round]:
    """Warms up, then measures the rounds without pauses."""
    await load.run(job.warm_up_seconds)
    return [await _round(load, job) for _ in range(job.rounds)]


async def _round(load: Load, job: ProduceJob | FloorJob | HttpJob) -> Round:
    load.latencies.clear()
    servers, client_cpu = usage(job.pids), time.process_time()
    began = time.perf_counter()
    messages = await load.run(job.seconds)
    seconds = time.perf_counter() - began
    client_cpu = time.process_time() - client_cpu
    servers = usage(job.pids).since(servers)
    p50, p99 = percentiles_ms(load.latencies, 0.5, 0.99)
    return Round(
        messages,
        seconds,
        client_cpu,
        servers.cpu_seconds,
        p50,
        p99,
        messages * job.size,
        servers.written_bytes,
    )


async def fill(producer: Producer, job: FillJob, rng: Random) -> None:
    """Sends whole batches until the topics have ``count`` messages, rounded up to whole batches."""
    loop = ClosedLoop(producer, job.topics, job.shape, rng.randbytes(job.size))
    await loop.run_count(job.count)


class ClosedLoop:
    """Sends in a loop, with callbacks instead of a task or coroutine for each message."""

    def __init__(
        self, producer: Producer, topics: Sequence[str], shape: LoadShape, body: bytes
    ) -> None:
        self._producer = producer
        self._kinds = cycle([Message(topic, body) for topic in topics])
        self._body = body
        self._shape = shape
        self._loop = asyncio.get_running_loop()
        self._under_way = 0
        self._acknowledged = 0
        self._to_send = 0
        self._stop_at: float | None = None
        self._ended: asyncio.Future[None]
        self.latencies: list[float] = []
        """The latency of each acknowledged request, in seconds."""

    async def run(self, seconds: float) -> int:
        """Sends for so long; returns how many messages were acknowledged, which is all of them.

        At least one request is sent, even if the process was paused for all that time.
        """
        self._stop_at = time.perf_counter() + seconds
        return await self._run()

    async def run_count(self, count: int) -> int:
        """Sends ``count`` messages (rounded up to whole batches)."""
        self._stop_at = None
        self._to_send = count
        return await self._run()

    async def _run(self) -> int:
        self._acknowledged = 0
        self._ended = self._loop.create_future()
        for _ in range(self._shape.in_flight):
            self._send(time.perf_counter())
        await self._ended
        return self._acknowledged

    def _send(self, sent_at: float) -> None:
        if self._stop_at is None:
            if self._to_send <= 0:
                return
            self._to_send -= self._shape.batch
        elif sent_at >= self._stop_at and (self._under_way or self._acknowledged):
            return
        self._under_way += 1
        kind, body, batch = next(self._kinds), self._body, self._shape.batch
        if batch == 1:
            answer = self._producer.send_nowait(kind.with_body(body))
        else:
            messages = [kind.with_body(body) for _ in range(batch)]
            answer = self._producer.send_batch_nowait(messages)
        answer.add_done_callback(partial(self._answered, sent_at))

    def _answered(self, sent_at: float, answer: asyncio.Future[SendResult]) -> None:
        self._under_way -= 1
        failure = answer.exception()
        if failure is not None:
            if not self._ended.done():
                self._ended.set_exception(failure)
            return
        now = time.perf_counter()
        self.latencies.append(now - sent_at)
        self._acknowledged += self._shape.batch
        self._send(now)
        if not self._under_way and not self._ended.done():
            self._ended.set_result(None)
