"""Reads a topic from its beginning, with consumers that read every body."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from contextlib import AsyncExitStack

from broker.bench.jobs import ReplayJob
from broker.bench.process_usage import usage
from broker.bench.results import Round
from broker.client.config import ConsumerConfig
from broker.client.consumer.consumer import Consumer
from store.io.filesystem import Bytes


async def replay(name_servers: str, job: ReplayJob) -> list[Round]:
    """Measures the rounds of a job, without the first answer and its time."""
    return [await _replay_once(name_servers, job) for _ in range(job.rounds)]


async def _replay_once(name_servers: str, job: ReplayJob) -> Round:
    config = ConsumerConfig(pull_messages_max=job.at_once)
    async with AsyncExitStack() as stack:
        readers = [
            Reader(
                await stack.enter_async_context(
                    Consumer(
                        name_servers,
                        f"dledger-bench-{number}",
                        {job.topic: "*"},
                        start_from="earliest",
                        broadcast=True,
                        config=config,
                    )
                )
            )
            for number in range(job.readers)
        ]
        before = sum([await each.first() for each in readers])
        servers, client_cpu = usage(job.pids), time.process_time()
        began = time.perf_counter()
        await _in_turn(readers, job.count)
        seconds = time.perf_counter() - began
        client_cpu = time.process_time() - client_cpu
        servers = usage(job.pids).since(servers)
        messages = sum(each.messages for each in readers) - before
        return Round(messages, seconds, client_cpu, servers.cpu_seconds)


async def _in_turn(readers: list[Reader], count: int) -> None:
    """Starts each reader once the one before has read its share."""
    running: list[asyncio.Task[None]] = []
    try:
        for reader in readers:
            await reader.read_up_to(min(count, count // len(readers)))
            running.append(asyncio.create_task(reader.read_up_to(count)))
        await asyncio.gather(*running)
    finally:
        for task in running:
            task.cancel()


class Reader:
    """A group of one consumer, which reads continuously."""

    def __init__(self, consumer: Consumer) -> None:
        self.messages = 0
        self.body_bytes = 0
        self._consumer = consumer

    async def first(self) -> int:
        """Waits for messages; returns their number."""
        self._take((await self._consumer.next_batch()).bodies())
        return self.messages

    async def read_up_to(self, count: int) -> None:
        """Reads until at least ``count`` messages were read in all."""
        while self.messages < count:
            self._take((await self._consumer.next_batch()).bodies())

    def _take(self, bodies: Iterable[Bytes]) -> None:
        for body in bodies:
            self.messages += 1
            self.body_bytes += len(body)
