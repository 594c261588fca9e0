"""What anybody may do to the peer port: names, addresses, connections and messages without end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
import msgpack
import pytest
from aiohttp import web

from dledger.config import PeerLimits
from dledger.errors import PeerError
from dledger.wire.codec import seal
from dledger.wire.greeting import (
    PROTOCOL_VERSION,
    Greeting,
    check_address,
    host_of,
    unpack_greeting,
)
from dledger.wire.peer_link import PATH
from dledger.wire.stranger_limits import StrangerLimits
from dledger.wire.websocket_transport import WebSocketTransport
from tests.dledger.wire.peer_node import LIMITS, node_a, until
from tests.dledger.wire.test_websocket_transport import Recorder, free_ports


def greeting(node: object, address: object = "127.0.0.1:1", group: object = "g") -> bytes:
    return seal(msgpack.packb([PROTOCOL_VERSION, group, node, address]))


async def refusal(session: aiohttp.ClientSession, url: str, sent: bytes) -> str:
    """Why the node does not let in who greets so."""
    async with session.ws_connect(url) as connection:
        await connection.send_bytes(sent)
        answer = await connection.receive(timeout=10)
        assert answer.data == aiohttp.WSCloseCode.POLICY_VIOLATION, answer
        return str(answer.extra)


# --- names


async def test_made_up_names_are_few_are_not_dialled_for_ever_and_leave_nothing() -> None:
    dialled = 0

    async def count(request: web.Request) -> web.Response:
        nonlocal dialled
        dialled += 1
        return web.Response(status=404)

    app = web.Application()
    app.router.add_get(PATH, count)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    [(_, port)] = runner.addresses
    try:
        async with node_a() as (a, _, url), aiohttp.ClientSession() as session:
            for number in range(300):
                connection = await session.ws_connect(url)
                await connection.send_bytes(greeting(f"x{number}", f"127.0.0.1:{port}"))
            await until(lambda: dialled and not a._links)
            assert dialled <= LIMITS.stranger_dials * (LIMITS.strangers_max + 10)
            assert a._stranger_limits.linked == 0
    finally:
        await runner.cleanup()


async def test_strangers_take_turns() -> None:
    strangers = StrangerLimits(
        PeerLimits(strangers_max=2, stranger_seconds=10, strangers_per_second=1)
    )
    assert strangers.admit("x0", 0.0) is None
    assert strangers.admit("x1", 0.0) is None
    with pytest.raises(PeerError, match="x2 is no member, and too many such peers came"):
        strangers.admit("x2", 0.5)
    with pytest.raises(PeerError, match="x2 is no member, and 2 such peers are here"):
        strangers.admit("x2", 1.0)
    assert strangers.admit("x2", 10.0) == "x0"
    strangers.forget("x1")
    assert strangers.admit("x3", 11.0) is None


async def test_a_stranger_that_becomes_a_member_stays_and_is_dialled() -> None:
    [port] = free_ports(1)
    async with node_a() as (a, heard, url):
        b = WebSocketTransport(
            group="g",
            node="b",
            host="127.0.0.1",
            port=port,
            peers={"a": url.removeprefix("http://").removesuffix(PATH)},
        )
        heard_b = Recorder()
        await b.start(heard_b)
        try:
            assert await heard.next() == ("connected", "b", None)
            assert await heard_b.next() == ("connected", "a", None)
            assert not a._links["b"].wanted
            a.set_peers(("a", "b"), {"b": f"127.0.0.1:{port}"})
            assert a._links["b"].wanted
            assert "b" not in a._stranger_limits
            a.set_peers(("a",), {})
        finally:
            await b.stop()
        assert await heard.next() == ("lost", "b", None)
        await until(lambda: "b" not in a._links)


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (greeting("n" * 65), "no node may be called"),
        (greeting("a b"), "no node may be called"),
        (greeting("b\nc"), "no node may be called"),
        (greeting(""), "no node may be called"),
        (greeting("b", "127.0.0.1"), "is not host:port"),
        (greeting("b", "127.0.0.1:0"), "is not host:port"),
        (greeting("b", "127.0.0.1:99999"), "is not host:port"),
        (greeting("b", "127.0.0.1:80/x"), "is not host:port"),
        (greeting("b", "u@10.0.0.1:80"), "is not host:port"),
        (greeting("b", "10.0.0.1:80"), "says that it is at 10.0.0.1:80, not 127.0.0.1"),
        (greeting("m", "10.0.0.3:80"), "says that it is at 10.0.0.3:80, not 127.0.0.1"),
        (greeting("b", group="x" * 700), "it is of group 'xxx"),
    ],
)
async def test_a_greeting_is_looked_at(
    sent: bytes, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        node_a(peers={"m": "10.0.0.2:1"}) as (a, _, url),
        aiohttp.ClientSession() as session,
    ):
        assert why[:30] in await refusal(session, url, sent)
        assert set(a._links) == {"m"}
    assert all(len(each.getMessage()) < 500 for each in caplog.records)


def test_a_member_may_dial_from_elsewhere_than_it_listens() -> None:
    moved = Greeting("g", "m", "10.0.0.2:7")
    check_address(moved, "192.168.0.1", "10.0.0.2:1")  # to another port
    check_address(moved, "10.0.0.2", "10.0.0.9:1")  # to another host
    check_address(moved, "10.0.0.2", None)
    with pytest.raises(PeerError, match="says that it is at"):
        check_address(moved, "192.168.0.1", None)


async def test_a_handshake_with_a_broken_key_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    async with node_a() as (_, _, url), aiohttp.ClientSession() as session:
        headers = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
        for key in ("\udcff", "a", "ä" * 16):
            told = headers | {
                "Sec-WebSocket-Key": key.encode(errors="surrogateescape").decode("latin1")
            }
            async with session.get(url, headers=told) as answer:
                assert answer.status == 400
    assert not [each for each in caplog.records if each.exc_info]


@pytest.mark.parametrize("size", [1 << 10, 1 << 20])
async def test_a_greeting_that_is_too_long_is_not_kept(size: int) -> None:
    async with node_a() as (a, _, url), aiohttp.ClientSession() as session:
        async with session.ws_connect(url) as connection:
            await connection.send_bytes(greeting("b", "x" * size))
            assert (await connection.receive(timeout=10)).type is aiohttp.WSMsgType.CLOSE
        assert not a._links


def test_a_greeting_has_few_fields_of_the_right_types() -> None:
    wrong: list[object] = [
        [1] * 4,
        [PROTOCOL_VERSION, b"g", "b", "h:1"],
        [PROTOCOL_VERSION] * 9,
        [],
        {},
    ]
    for fields in wrong:
        with pytest.raises(PeerError):
            unpack_greeting(seal(msgpack.packb(fields)))
    for address in ("h:1", "a-b.c:65535"):
        assert host_of(address)


async def test_many_refusals_are_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    async with node_a() as (_, _, url), aiohttp.ClientSession() as session:
        for _ in range(30):
            await refusal(session, url, greeting("b", group="x" * 500))
    told = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert 1 <= len(told) < 15
    assert all(len(each) < 300 for each in told)


# --- connections


async def test_connections_that_say_nothing_are_few_and_short() -> None:
    async with node_a() as (a, heard, url):
        address = url.removeprefix("http://").removesuffix(PATH).split(":")
        opened = [
            await asyncio.open_connection(address[0], int(address[1]))
            for _ in range(LIMITS.ungreeted_max + 5)
        ]
        for _, writer in opened:
            writer.write(b"GET /dledger HTTP/1.1\r\nHost: a\r\nX: ")  # and no end of it
        async with asyncio.timeout(10):
            for reader, _ in opened:
                assert await reader.read() == b""
        for _, writer in opened:
            writer.close()
        assert not a._listener._ungreeted
        assert heard.events.empty()


async def test_a_member_gets_in_past_those_that_say_nothing() -> None:
    limits = PeerLimits(ungreeted_max=3)
    [port] = free_ports(1)
    async with node_a(limits, {"b": f"127.0.0.1:{port}"}) as (_, heard, url):
        host, _, number = url.removeprefix("http://").removesuffix(PATH).partition(":")
        opened = [await asyncio.open_connection(host, int(number)) for _ in range(20)]
        b = WebSocketTransport(
            group="g", node="b", host="127.0.0.1", port=port, peers={"a": f"{host}:{number}"}
        )
        await b.start(Recorder())
        try:
            assert await heard.next() == ("connected", "b", None)
        finally:
            await b.stop()
        for _, writer in opened:
            writer.close()


async def test_a_peer_that_only_listens_and_pings_is_closed() -> None:
    async with (
        node_a() as (a, _, url),
        aiohttp.ClientSession() as session,
        session.ws_connect(url) as connection,
    ):
        await connection.send_bytes(greeting("b"))
        await until(lambda: "b" in a._links and a._links["b"].speaking)
        await connection.ping()
        await until(lambda: "b" not in a._links)


@asynccontextmanager
async def peer_that_answers(
    behave: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[str]:
    """A server that does so with whoever dials it."""
    server = await asyncio.start_server(behave, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


async def test_who_is_dialled_and_never_answers_is_given_up() -> None:
    ended: list[bytes] = []

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ended.append(await reader.read())
        writer.close()

    async with peer_that_answers(silent) as address, node_a(peers={"b": address}):
        await until(lambda: len(ended) > 1)


async def test_a_peer_sends_nobody_elsewhere() -> None:
    asked: list[str] = []

    async def elsewhere(request: web.Request) -> web.Response:
        asked.append(request.path)
        raise web.HTTPFound(f"http://{request.host}/elsewhere")

    app = web.Application()
    app.router.add_get("/{any:.*}", elsewhere)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    [(host, port)] = runner.addresses
    try:
        async with node_a(peers={"b": f"{host}:{port}"}):
            await until(lambda: len(asked) > 3)
    finally:
        await runner.cleanup()
    assert set(asked) == {PATH}
