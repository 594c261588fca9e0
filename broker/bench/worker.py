"""The process that makes the load: ``python -m broker.bench.worker NAMESRV``.

It reads one job in each line of stdin and writes one result in each line of stdout, until stdin
ends. During a :class:`~broker.bench.jobs.ProbeJob` each line is a time (``time.perf_counter``). The
answer is the time at which the first message sent after it was acknowledged. An empty line ends the
probe.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from random import Random

import orjson
import uvloop

from broker.bench.failover_probe import Probe
from broker.bench.floor_load import send_to_floor
from broker.bench.held_connections import HeldConnections
from broker.bench.http_load import send_by_http
from broker.bench.jobs import (
    ConnectionsJob,
    FillJob,
    FloorJob,
    HttpJob,
    Job,
    ProbeJob,
    ProduceJob,
    ReplayJob,
    SteadyJob,
    decode_job,
)
from broker.bench.produce import fill, produce
from broker.bench.replay import replay
from broker.bench.results import Round
from broker.bench.steady import send_steadily
from broker.client.config import ProducerConfig
from broker.client.errors import ClientError
from broker.client.producer.producer import Producer
from broker.remoting.protocol.errors import CallError
from broker.system.file_descriptor_limits import DescriptorLimits, raise_file_limit
from broker.system.malloc_tuning import keep_freed_memory

DEADLINE_SECONDS = 60.0
"""The longest time of a failover."""


async def work(name_servers: str) -> int:
    """Does jobs until there are no more. Returns 1 if one failed."""
    config = ProducerConfig(group="dledger-bench", deadline_seconds=DEADLINE_SECONDS)
    rng = Random()
    lines = _stdin_lines()
    connections = HeldConnections()
    try:
        async with Producer(name_servers, config, rng=rng) as producer, connections:
            tools = Tools(name_servers, producer, connections, rng)
            async for line in lines:
                job = decode_job(line)
                if isinstance(job, ProbeJob):
                    await _probe(producer, job, rng, lines)
                else:
                    _answer(await _do(tools, job))
    except (CallError, ClientError, OSError) as error:
        _answer({"error": str(error)})
        return 1
    return 0


@dataclass(frozen=True, slots=True)
class Tools:
    """The clients that jobs use."""

    name_servers: str
    producer: Producer
    connections: HeldConnections
    rng: Random


async def _do(tools: Tools, job: Job) -> object:
    match job:
        case ProduceJob():
            return _rounds(await produce(tools.producer, job, tools.rng))
        case SteadyJob():
            return [asdict(each) for each in await send_steadily(tools.producer, job, tools.rng)]
        case ReplayJob():
            return _rounds(await replay(tools.name_servers, job))
        case FloorJob():
            return _rounds(await send_to_floor(job, tools.rng))
        case HttpJob():
            return _rounds(await send_by_http(job, tools.rng))
        case FillJob():
            await fill(tools.producer, job, tools.rng)
        case ConnectionsJob():
            await tools.connections.hold(job)
        case ProbeJob():
            raise TypeError("a probe has no single result")
    return {}


def _rounds(rounds: list[Round]) -> list[dict[str, object]]:
    return [asdict(each) for each in rounds]


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
    raise_file_limit(DescriptorLimits())
    sys.exit(uvloop.run(work(sys.argv[1])))
