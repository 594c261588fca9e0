"""The HTTP port of a broker, over connections in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

from broker.http.memory_budget import MEMORY, MemoryBudget
from broker.http.server import HttpServer
from broker.limits import HTTP, HttpLimits
from broker.prometheus.ports import PortMetrics
from tests.broker.single_broker import SingleBroker, running_broker
from tests.support.virtual_network import MemoryTransport, NetworkedLoop

HOST = "Host: 127.0.0.1:8080"


class Curl(asyncio.Protocol):
    """One request on a connection of its own."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._received = bytearray()
        self._closed: asyncio.Future[None] = loop.create_future()

    def data_received(self, data: bytes) -> None:
        self._received += data

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed.set_result(None)

    @property
    def begun(self) -> bool:
        """Whether an answer has begun."""
        return bool(self._received)

    @property
    def all(self) -> bytes:
        """The bytes of the answer so far."""
        return bytes(self._received)

    async def parts(self) -> tuple[bytes, bytes]:
        """Head and body."""
        await self._closed
        head, _, body = bytes(self._received).partition(b"\r\n\r\n")
        return head, body

    async def answer(self) -> tuple[int, Any]:
        """Status and document."""
        head, body = await self.parts()
        assert b"application/json" in head, head
        return int(head.split()[1]), orjson.loads(body)


class Site:
    """A broker with its HTTP server."""

    def __init__(self, broker: SingleBroker, server: HttpServer, runner: web.AppRunner) -> None:
        self.broker = broker
        self.server = server
        self._runner = runner

    @property
    def memory(self) -> MemoryBudget:
        return self._runner.app[MEMORY]

    def protocol(self) -> asyncio.Protocol:
        """The protocol that serves one connection."""
        assert self._runner.server is not None
        return self._runner.server()

    def begin(
        self, method: str, path: str, size: int, headers: Sequence[str] = (HOST,)
    ) -> tuple[MemoryTransport, Curl]:
        """Sends all but the body."""
        loop = self.broker.loop
        curl = Curl(loop)
        near, _ = loop.join(curl, self.protocol(), 8080)
        head = (
            f"{method} {path} HTTP/1.1",
            *headers,
            "Connection: close",
            f"Content-Length: {size}",
        )
        near.write("\r\n".join((*head, "", "")).encode(errors="surrogateescape"))
        return near, curl

    async def head(self, method: str, path: str, headers: Sequence[str]) -> bytes:
        """The head of the answer."""
        _, curl = self.begin(method, path, 0, headers)
        return (await curl.parts())[0]

    def ask(
        self, method: str, path: str, body: bytes = b"", headers: Sequence[str] = (HOST,)
    ) -> asyncio.Task[tuple[int, Any]]:
        connection, curl = self.begin(method, path, len(body), headers)
        connection.write(body)
        return asyncio.ensure_future(curl.answer())

    async def post(self, topic: str, document: object) -> tuple[int, Any]:
        return await self.ask_with("POST", f"/topics/{topic}/messages", document)

    async def ask_with(self, method: str, path: str, document: object) -> tuple[int, Any]:
        return await self.ask(method, path, orjson.dumps(document))


@asynccontextmanager
async def served(broker: SingleBroker, limits: HttpLimits = HTTP) -> AsyncIterator[Site]:
    """The HTTP server of a broker that runs."""
    remoting = PortMetrics(lambda: len(broker.server.connections), broker.server.refusals)
    server = HttpServer(
        broker.broker.context, limits, remoting=remoting, nameservers={"ns:9876": "registered"}
    )
    runner = server.runner()
    await runner.setup()
    yield Site(broker, server, runner)
    await runner.cleanup()


@asynccontextmanager
async def running_site(
    loop: NetworkedLoop, data: Path, *, limits: HttpLimits = HTTP, **settings: Any
) -> AsyncIterator[Site]:
    """A broker and its HTTP server, started and stopped."""
    async with running_broker(loop, data, **settings) as broker, served(broker, limits) as site:
        yield site
