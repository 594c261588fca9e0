"""The load over HTTP: single messages by ``POST /topics/T/messages``, in a closed loop."""

from __future__ import annotations

import asyncio
import time
from random import Random

import aiohttp
import orjson

from broker.bench.jobs import HttpJob
from broker.bench.produce import measure
from broker.bench.results import Round
from broker.client.errors import ClientError

_CALL_SECONDS = 30.0
_HEADERS = {"Content-Type": "application/json"}


class HttpLoadError(ClientError):
    """A message was refused, or not answered."""


async def send_by_http(job: HttpJob, rng: Random) -> list[Round]:
    """See :func:`~broker.bench.produce.measure`. Raises :class:`HttpLoadError`."""
    connector = aiohttp.TCPConnector(limit=job.shape.in_flight)
    timeout = aiohttp.ClientTimeout(total=_CALL_SECONDS)
    async with aiohttp.ClientSession(
        connector=connector, timeout=timeout, headers=_HEADERS
    ) as session:
        try:
            return await measure(HttpLoad(session, job, rng), job)
        except aiohttp.ClientError as error:
            raise HttpLoadError(f"{job.address}: {error}") from error


class HttpLoad:
    """The body is text of hexadecimal digits."""

    def __init__(self, session: aiohttp.ClientSession, job: HttpJob, rng: Random) -> None:
        self.latencies: list[float] = []
        """The latency of each request, in seconds."""
        text = rng.randbytes(job.size // 2 + 1).hex()[: job.size]
        self._session = session
        self._url = f"http://{job.address}/topics/{job.topic}/messages"
        self._request = orjson.dumps({"body": text})
        self._in_flight = job.shape.in_flight

    async def run(self, seconds: float) -> int:
        """Sends for ``seconds``; returns the number of messages, all of which were acknowledged."""
        ends = time.perf_counter() + seconds
        return sum(await asyncio.gather(*(self._repeat(ends) for _ in range(self._in_flight))))

    async def _repeat(self, ends: float) -> int:
        messages = 0
        while (began := time.perf_counter()) < ends:
            async with self._session.post(self._url, data=self._request) as answer:
                told = await answer.read()
            if answer.status != 200:
                raise HttpLoadError(f"{answer.status}: {told.decode(errors='replace')}")
            self.latencies.append(time.perf_counter() - began)
            messages += 1
        return messages
