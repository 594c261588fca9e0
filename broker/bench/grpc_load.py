"""Load over gRPC, and a server that does nothing: ``python -m broker.bench.grpc_load``.

    grpc_load echo          serves; prints its port, and ends with its input
    grpc_load load JOB      prints the rounds of one job (:class:`GrpcJob`, as JSON)

The server that does nothing answers calls with requests and answers of the size of a send's. So its
CPU time is the cost of grpcio itself.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from itertools import count
from typing import Any
from uuid import uuid4

import grpc
import orjson

from broker.bench.process_usage import cpu_seconds
from broker.bench.results import Round, percentiles_ms
from broker.grpc.protocol import definition_pb2 as df
from broker.grpc.protocol import service_pb2 as pb

SERVICE = "apache.rocketmq.v2.MessagingService"
SEND, RECEIVE, ECHO = "send", "receive", "echo"
GROUP = "dledger-bench"
BATCH = 32
"""Messages in one receive request, and in one acknowledgement."""

_METADATA = (("x-mq-client-id", f"dledger-bench-{uuid4().hex}"),)
_CALL_SECONDS = 30.0
_ANSWER = pb.SendMessageResponse(
    status=df.Status(code=df.Code.OK, message="OK"),
    entries=[
        pb.SendResultEntry(
            status=df.Status(code=df.Code.OK, message="OK"), message_id="0" * 40, offset=1 << 40
        )
    ],
).SerializeToString()


@dataclass(frozen=True, slots=True)
class GrpcJob:
    """``operation`` is ``send``, ``receive`` or ``echo``; ``target`` a port as ``host:port``."""

    operation: str
    target: str
    topic: str
    size: int
    in_flight: int
    warm_up_seconds: float
    seconds: float
    rounds: int
    pids: tuple[int, ...]
    """The pids of the servers, whose CPU time is reported."""


class CallError(Exception):
    """A call was refused."""


class _Load:
    """Calls in a closed loop. Each kind of call returns the number of handled messages; 0: there
    are no more."""

    def __init__(self, channel: Any, job: GrpcJob) -> None:
        self._job = job
        self._send = channel.unary_unary(f"/{SERVICE}/SendMessage")
        self._ack = channel.unary_unary(f"/{SERVICE}/AckMessage")
        self._receive = channel.unary_stream(f"/{SERVICE}/ReceiveMessage")
        self._topic = df.Resource(name=job.topic)
        self._group = df.Resource(name=GROUP)
        self._body = bytes(job.size)
        self._ids = count()
        self._run = uuid4().hex
        self.latencies: list[float] = []

    async def send(self) -> int:
        system = df.SystemProperties(
            message_id=f"{self._run}{next(self._ids):08X}",
            message_type=df.MessageType.NORMAL,
            body_encoding=df.Encoding.IDENTITY,
        )
        message = df.Message(topic=self._topic, body=self._body, system_properties=system)
        request = pb.SendMessageRequest(messages=[message]).SerializeToString()
        answer = await self._send(request, metadata=_METADATA, timeout=_CALL_SECONDS)
        _check(pb.SendMessageResponse.FromString(answer).status)
        return 1

    async def receive(self) -> int:
        request = pb.ReceiveMessageRequest(
            group=self._group, message_queue=df.MessageQueue(topic=self._topic), batch_size=BATCH
        )
        request.invisible_duration.FromSeconds(60)
        request.long_polling_timeout.FromSeconds(0)
        call = self._receive(request.SerializeToString(), metadata=_METADATA, timeout=_CALL_SECONDS)
        entries = []
        async for each in call:
            answer = pb.ReceiveMessageResponse.FromString(each)
            if answer.HasField("message"):
                system = answer.message.system_properties
                entries.append(
                    pb.AckMessageEntry(
                        message_id=system.message_id, receipt_handle=system.receipt_handle
                    )
                )
            elif answer.status.code == df.Code.MESSAGE_NOT_FOUND:
                return 0
            elif answer.HasField("status"):
                _check(answer.status)
        acks = pb.AckMessageRequest(group=self._group, topic=self._topic, entries=entries)
        acked = await self._ack(acks.SerializeToString(), metadata=_METADATA, timeout=_CALL_SECONDS)
        _check(pb.AckMessageResponse.FromString(acked).status)
        return len(entries)

    async def run(self, seconds: float) -> int:
        """The number of messages handled in ``seconds``."""
        once = self.receive if self._job.operation == RECEIVE else self.send
        ends = time.perf_counter() + seconds
        each = [self._repeat(once, ends) for _ in range(self._job.in_flight)]
        return sum(await asyncio.gather(*each))

    async def _repeat(self, once: Callable[[], Awaitable[int]], ends: float) -> int:
        messages = 0
        while True:
            began = time.perf_counter()
            if began >= ends and messages:
                return messages
            done = await once()
            if not done:
                return messages
            messages += done
            self.latencies.append(time.perf_counter() - began)


def _check(status: df.Status) -> None:
    if status.code != df.Code.OK:
        name = df.Code.Name(status.code)
        raise CallError(f"{name}: {status.message}")


async def measure(job: GrpcJob) -> list[Round]:
    """Measures a job. Raises :class:`CallError`, and ``RuntimeError`` if there was nothing to
    receive."""
    rounds = []
    async with grpc.aio.insecure_channel(job.target) as channel:
        load = _Load(channel, job)
        await load.run(job.warm_up_seconds)
        for _ in range(job.rounds):
            load.latencies.clear()
            server_cpu, client_cpu = cpu_seconds(job.pids), time.process_time()
            began = time.perf_counter()
            messages = await load.run(job.seconds)
            seconds = time.perf_counter() - began
            if not messages:
                raise RuntimeError("all messages have been received: a shorter round needs fewer")
            client_cpu = time.process_time() - client_cpu
            server_cpu = cpu_seconds(job.pids) - server_cpu
            p50, p99 = percentiles_ms(load.latencies, 0.5, 0.99)
            rounds.append(
                Round(
                    messages,
                    seconds,
                    client_cpu,
                    server_cpu,
                    p50,
                    p99,
                )
            )
    return rounds


async def serve_echo() -> None:
    """Answers every send with the same bytes, until the input ends."""

    async def answer(_request: bytes, _context: object) -> bytes:
        return _ANSWER

    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    handler = grpc.unary_unary_rpc_method_handler(answer)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(SERVICE, {"SendMessage": handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await server.stop(0)


def main(arguments: list[str]) -> int:
    """Runs the program; 1 if a job failed."""
    if arguments == [ECHO]:
        asyncio.run(serve_echo())
        return 0
    fields = orjson.loads(arguments[1])
    job = GrpcJob(**(fields | {"pids": tuple(fields["pids"])}))
    try:
        rounds = asyncio.run(measure(job))
    except (CallError, RuntimeError, grpc.aio.AioRpcError) as error:
        print(orjson.dumps({"error": str(error)}).decode())
        return 1
    print(orjson.dumps([asdict(each) for each in rounds]).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
