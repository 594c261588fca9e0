"""The process that makes the load: ``python -m broker.bench.worker NAMESRV``.

It reads one job a line from stdin and writes one result a line to stdout, until stdin ends. During
a :class:`~broker.bench.jobs.ProbeJob` each line is a moment (``time.perf_counter``). The answer is
the moment at which the first message was acknowledged that was sent after it. An empty line ends
the probe.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import asdict
from random import Random

import orjson
import uvloop

from broker.bench.failover_probe import Probe
from broker.bench.jobs import FillJob, Job, ProbeJob, ReplayJob, decode_job
from broker.bench.produce import fill, produce
from broker.bench.replay import replay
from broker.client.config import ProducerConfig
from broker.client.errors import ClientError
from broker.client.producer.producer import Producer
from broker.remoting.protocol.errors import CallError
from broker.system.malloc_tuning import keep_freed_memory

DEADLINE_SECONDS = 60.0
"""No failover may take longer."""


async def work(name_servers: str) -> int:
    """Does jobs until there are no more; 1 if one failed."""
    config = ProducerConfig(group="dledger-bench", deadline_seconds=DEADLINE_SECONDS)
    rng = Random()
    lines = _stdin_lines()
    try:
        async with Producer(name_servers, config, rng=rng) as producer:
            async for line in lines:
                job = decode_job(line)
                if isinstance(job, ProbeJob):
                    await _probe(producer, job, rng, lines)
                else:
                    _answer(await _do(name_servers, producer, job, rng))
    except (CallError, ClientError) as error:
        _answer({"error": str(error)})
        return 1
    return 0


async def _do(name_servers: str, producer: Producer, job: Job, rng: Random) -> object:
    if isinstance(job, ReplayJob):
        return [asdict(each) for each in await replay(name_servers, job)]
    if isinstance(job, FillJob):
        await fill(producer, job, rng)
        return {}
    if isinstance(job, ProbeJob):
        raise TypeError("a probe is a conversation")
    return [asdict(each) for each in await produce(producer, job, rng)]


async def _probe(
    producer: Producer, job: ProbeJob, rng: Random, lines: AsyncIterator[bytes]
) -> None:
    probe = Probe(producer, job, rng)
    try:
        async for line in lines:
            if line == b"\n":
                break
            _answer({"at": await probe.first_after(orjson.loads(line))})
    finally:
        await probe.stop()


async def _stdin_lines() -> AsyncIterator[bytes]:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    while line := await reader.readline():
        yield line


def _answer(result: object) -> None:
    sys.stdout.buffer.write(orjson.dumps(result, option=orjson.OPT_APPEND_NEWLINE))
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    keep_freed_memory()
    sys.exit(uvloop.run(work(sys.argv[1])))
