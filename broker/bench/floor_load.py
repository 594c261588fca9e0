"""The load on a relay (``floor_relay.py``): as many bytes as in requests with messages."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from random import Random
from typing import cast

from broker.bench.floor_relay import DurableCounts
from broker.bench.jobs import FloorJob, LoadShape
from broker.bench.produce import measure
from broker.bench.results import Round
from dledger.wire.endpoint import Endpoint


async def send_to_floor(job: FloorJob, rng: Random) -> list[Round]:
    """See :func:`~broker.bench.produce.measure`."""
    host, port = Endpoint.parse(job.address)
    loop = asyncio.get_running_loop()
    transport, load = await loop.create_connection(
        lambda: FloorLoad(rng.randbytes(job.shape.batch * job.size), job.shape),
        host,
        port,
    )
    try:
        return await measure(load, job)
    finally:
        transport.close()


class FloorLoad(asyncio.Protocol):
    """A closed loop of requests of plain bytes."""

    def __init__(self, request: bytes, shape: LoadShape) -> None:
        self.latencies: list[float] = []
        """The latency of each request, in seconds."""
        self._request = request
        self._shape = shape
        self._sent_at: deque[float] = deque()
        self._durable_requests = 0
        self._stop_at = 0.0
        self._counts = DurableCounts()
        self._ended: asyncio.Future[None]
        self._transport: asyncio.WriteTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)

    def connection_lost(self, error: Exception | None) -> None:
        if not self._ended.done():
            self._ended.set_exception(error or ConnectionResetError("the floor's relay has ended"))

    async def run(self, seconds: float) -> int:
        """Sends for ``seconds``; returns the number of messages, all of which became durable."""
        before = self._durable_requests
        self._ended = asyncio.get_running_loop().create_future()
        self._stop_at = time.perf_counter() + seconds
        for _ in range(self._shape.in_flight):
            self._send()
        await self._ended
        return (self._durable_requests - before) * self._shape.batch

    def data_received(self, data: bytes) -> None:
        durable = self._counts.last(data)
        if durable is None:
            return
        now = time.perf_counter()
        for _ in range(durable // len(self._request) - self._durable_requests):
            self._durable_requests += 1
            self.latencies.append(now - self._sent_at.popleft())
            if now < self._stop_at:
                self._send()
        if not self._sent_at:
            self._ended.set_result(None)

    def _send(self) -> None:
        self._sent_at.append(time.perf_counter())
        self._transport.write(self._request)
