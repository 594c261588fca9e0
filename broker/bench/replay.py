"""Reading a topic from its beginning, as a consumer that looks at every body."""

from __future__ import annotations

import time

from broker.bench.cpu_time import cpu_seconds
from broker.bench.jobs import ReplayJob, Round
from broker.client.consumer.consumer import Consumer


async def replay(name_servers: str, job: ReplayJob) -> list[Round]:
    """Each round is a new group. The time until the first answer is not measured."""
    return [await _replay_once(name_servers, job) for _ in range(job.rounds)]


async def _replay_once(name_servers: str, job: ReplayJob) -> Round:
    async with Consumer(
        name_servers, "dledger-bench", {job.topic: "*"}, start_from="earliest", broadcast=True
    ) as consumer:
        before = len(await consumer.next_batch())
        server_cpu, client_cpu = cpu_seconds(job.pids), time.process_time()
        began = time.perf_counter()
        messages = body_bytes = 0
        while before + messages < job.count:
            for body in (await consumer.next_batch()).bodies():
                messages += 1
                body_bytes += len(body)
        seconds = time.perf_counter() - began
        return Round(
            messages,
            seconds,
            time.process_time() - client_cpu,
            cpu_seconds(job.pids) - server_cpu,
        )
