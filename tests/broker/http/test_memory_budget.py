"""What requests and answers of the HTTP port hold in memory is bounded, and given back."""

from __future__ import annotations

import asyncio
import gc
import gzip
import tracemalloc
import zlib
from pathlib import Path

import orjson
import pytest
from aiohttp import StreamReader, web

from broker.http.connections import Connections
from broker.limits import HttpLimits
from tests.broker.http.site import HOST, Curl, Site, running_site
from tests.support.virtual_network import MemoryTransport, NetworkedLoop, turns

PATH = "/topics/orders/messages"
LARGE = orjson.dumps({"body": "x" * 50_000, "queue_id": 0})
SMALL = orjson.dumps({"body": "a", "queue_id": 0})
LIMITS = HttpLimits(
    memory_max=1,
    free_bytes=1000,
    stall_seconds=20,
    body_bytes_per_second=1000,
    escaped_factor=2,
    around_body_bytes=32 << 10,
)
"""So little that the largest request, of 192 KiB, fills it."""


async def test_bodies_on_their_way_share_one_budget(loop: NetworkedLoop, tmp_path: Path) -> None:
    async with running_site(loop, tmp_path, limits=LIMITS) as site:
        begun = [site.begin("POST", PATH, len(LARGE)) for _ in range(6)]
        for connection, _ in begun:
            connection.write(LARGE[:-1])
            await turns()
        refused = [curl for _, curl in begun if curl.begun]
        assert len(refused) == 2
        for curl in refused:
            assert (await curl.answer())[0] == 503
        # Others may go on: a small message is not counted, and who is done makes room.
        assert (await site.ask("POST", PATH, SMALL))[0] == 200
        for connection, curl in begun:
            if curl not in refused:
                connection.write(LARGE[-1:])
                assert (await curl.answer())[0] == 200
        assert (await site.ask("POST", PATH, LARGE))[0] == 200
        assert site.memory.held == 0


async def test_a_body_that_stops_coming_is_given_up(loop: NetworkedLoop, tmp_path: Path) -> None:
    async with running_site(loop, tmp_path, limits=LIMITS) as site:
        connection, curl = site.begin("POST", PATH, len(LARGE))
        connection.write(LARGE[:10_000])
        await turns()
        assert site.memory.held == 9000
        assert await curl.answer() == (
            408,
            {"error": "the body came too slowly: 10000 bytes so far"},
        )
        assert site.memory.held == 0


@pytest.mark.parametrize(("every_seconds", "status"), [(5, 200), (15, 408)])
async def test_a_slow_body_may_take_its_time_if_it_comes(
    loop: NetworkedLoop, tmp_path: Path, every_seconds: int, status: int
) -> None:
    async with running_site(loop, tmp_path, limits=LIMITS) as site:
        connection, curl = site.begin("POST", PATH, len(LARGE))
        answer = asyncio.ensure_future(curl.answer())
        for start in range(0, len(LARGE), 6000):
            connection.write(LARGE[start : start + 6000])
            await asyncio.wait((answer,), timeout=every_seconds)
        assert (await answer)[0] == status


@pytest.mark.parametrize("path", [PATH, "/snapshot"])
async def test_an_upload_that_is_aborted_leaves_nothing_behind(
    loop: NetworkedLoop, tmp_path: Path, path: str
) -> None:
    """Not even for the garbage collector, which comes by seldom."""

    async with running_site(loop, tmp_path, limits=LIMITS) as site:

        def streams() -> int:
            return sum(type(each) is StreamReader for each in gc.get_objects())

        await site.ask("POST", path, LARGE)
        gc.collect()
        before = streams()
        gc.disable()
        try:
            for _ in range(10):
                connection, curl = site.begin("POST", path, len(LARGE))
                connection.write(LARGE[:-1])
                await turns()
                assert site.memory.held > 0
                connection.abort()
                await curl.parts()
                await turns(20)
                assert site.memory.held == 0
            assert streams() <= before + 1
        finally:
            gc.enable()


@pytest.mark.parametrize(("count", "status"), [(60, b"200"), (70, b"400")])
async def test_a_request_has_so_many_headers(
    loop: NetworkedLoop, tmp_path: Path, count: int, status: bytes
) -> None:
    async with running_site(loop, tmp_path, limits=HttpLimits(headers_max=64)) as site:
        headers = [HOST, *(f"X-{number}: {number}" for number in range(count))]
        head = await site.head("GET", "/status", headers)
        assert head.split()[1] == status


async def test_a_body_that_says_that_it_is_too_large_is_not_read(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    async with running_site(loop, tmp_path, limits=LIMITS) as site:
        _, curl = site.begin("POST", PATH, 1 << 30)
        status, answer = await curl.answer()
        assert (status, answer["error"]) == (413, "the request has more than 196608 bytes")


async def test_answers_that_nobody_takes_share_the_budget(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    async with running_site(loop, tmp_path, limits=LIMITS) as site:
        for _ in range(2):
            await site.ask("POST", PATH, orjson.dumps({"body": "x" * 60_000, "queue_id": 0}))
        begun = []
        for _ in range(3):
            connection, curl = site.begin("GET", "/topics/orders/queues/0/messages", 0)
            connection.pause_reading()
            begun.append((connection, curl))
            await turns(20)
        assert site.memory.held > 100_000
        for connection, _ in begun:
            connection.resume_reading()
        answers = [(await curl.answer())[0] for _, curl in begun]
        assert (answers[0], answers[-1]) == (200, 503)
        assert site.memory.held == 0


async def test_what_is_decompressed_counts_before_it_becomes_an_answer(
    loop: NetworkedLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As JSON, a byte may be six."""
    made: list[bytes] = []
    monkeypatch.setattr("broker.http.consume.message_json", lambda _, body: made.append(body))
    async with running_site(loop, tmp_path, limits=LIMITS) as site:
        await site.broker.create_topic("orders")
        await site.broker.send("orders", 0, zlib.compress(bytes(300_000)), f="1")
        status, answer = await site.ask("GET", "/topics/orders/queues/0/messages")
        assert not made
        assert (status, "too much is being" in answer["error"]) == (503, True)
        assert site.memory.held == 0


class Peer(asyncio.Protocol):
    """Notes that its connection ended."""

    def __init__(self) -> None:
        self.end = asyncio.Event()

    @property
    def ended(self) -> bool:
        return self.end.is_set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.end.set()


class Serving(asyncio.Protocol):
    """Writes much, and lets go of the connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, MemoryTransport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(bytes(200_000))
        if data == b"close":
            self.transport.close()


async def test_only_so_many_connections_are_served(loop: NetworkedLoop) -> None:
    connections = Connections(loop, HttpLimits(connections_max=2), Serving)
    peers = [Peer() for _ in range(3)]
    nears = [loop.join(peer, connections.accept())[0] for peer in peers]
    await turns()
    assert [peer.ended for peer in peers] == [False, False, True]
    nears[0].close()
    await turns()
    assert len(connections) == 1
    another = Peer()
    loop.join(another, connections.accept())
    await turns()
    assert not another.ended


async def test_a_peer_that_takes_nothing_loses_its_connection(loop: NetworkedLoop) -> None:
    connections = Connections(loop, HttpLimits(stall_seconds=20), Serving)
    connections.start()
    peers = {}
    for request in (b"go on", b"close", b""):
        peers[request] = Peer()
        near, _ = loop.join(peers[request], connections.accept())
        near.pause_reading()
        near.write(request)
    await asyncio.sleep(61)
    assert {request: peer.ended for request, peer in peers.items()} == {
        b"go on": True,
        b"close": True,
        b"": False,
    }
    connections.stop()
    await turns()
    assert len(connections) == 0


async def test_what_is_no_http_is_not_kept_while_a_request_is_served(loop: NetworkedLoop) -> None:
    """Many pieces of it, behind a request whose answer takes a while, and behind a body that
    nobody wants."""

    async def serve(request: web.Request) -> web.Response:
        await asyncio.sleep(30)
        return web.Response(status=401)

    runner = web.AppRunner(web.Application())
    runner.app.router.add_route("*", "/", serve)
    await runner.setup()
    assert runner.server is not None
    connections = Connections(loop, HttpLimits(), runner.server)
    for body in (0, 100_000):
        curl, serving = Curl(loop), connections.accept()
        near, _ = loop.join(curl, serving)
        near.write(f"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {body}\r\n\r\n".encode())
        await turns()
        gc.disable()  # nor does it wait for a collection
        tracemalloc.start()
        for _ in range(40):
            serving.data_received(b"x" * (256 << 10))
            await turns()
        kept, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        gc.enable()
        assert kept < 256 << 10
        assert most < 2 << 20
        head, _ = await curl.parts()
        assert head.startswith(b"HTTP/1.1 401 ")
        assert b" 400 Bad Request" in curl.all
    await runner.cleanup()


async def test_a_connection_without_a_request_is_closed(site: Site) -> None:
    loop = site.broker.loop
    begun_at = loop.time()
    for sent in (b"", f"GET /status HTTP/1.1\r\n{HOST}\r\nX-Half: ".encode()):
        peer = Peer()
        near, _ = loop.join(peer, site.protocol())
        near.write(sent)
        await peer.end.wait()
    assert loop.time() - begun_at == pytest.approx(2 * 60, abs=4)


async def test_a_compressed_body_is_refused_unread(site: Site) -> None:
    for body in (gzip.compress(SMALL), b"no gzip"):
        answer = site.ask("POST", PATH, body, (HOST, "Content-Encoding: gzip"))
        assert await answer == (415, {"error": "the encoding gzip is not supported"})


async def test_a_header_that_is_no_text_is_one_line(
    loop: NetworkedLoop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_site(loop, tmp_path) as site:
        answer = await site.head("GET", "/topics", (HOST, "Expect: \udcd4"))
        assert answer.startswith(b"HTTP/1.1 500 ")
    assert not [each for each in caplog.records if each.exc_info]
