"""The WebSocket transport on loopback: links, order, strangers, garbage."""

from __future__ import annotations

import asyncio
import logging
import random
import socket
from collections.abc import AsyncIterator

import aiohttp
import msgpack
import pytest
import uvloop
from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from dledger.raft.messages import AppendRequest, Heartbeat
from dledger.wire.codec import seal
from dledger.wire.greeting import PROTOCOL_VERSION
from dledger.wire.peer_link import PATH
from dledger.wire.transport import Message
from dledger.wire.websocket_transport import DIAL_SECONDS_FIRST, WebSocketTransport
from store.log.entry import EntryKind, build_entry


class Recorder:
    """A handler that notes what it is told, and lets a test wait for it."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[tuple[str, str, Message | None]] = asyncio.Queue()

    def on_message(self, sender: str, message: Message) -> None:
        self.events.put_nowait(("message", sender, message))

    def on_peer_connected(self, peer: str, _features: object = ()) -> None:
        self.events.put_nowait(("connected", peer, None))

    def on_peer_lost(self, peer: str) -> None:
        self.events.put_nowait(("lost", peer, None))

    async def next(self) -> tuple[str, str, Message | None]:
        async with asyncio.timeout(10):
            return await self.events.get()


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago; none that the system gives to a connection meanwhile."""
    ports: list[int] = []
    for port in random.sample(range(20_000, 32_768), 100):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        ports.append(port)
        if len(ports) == count:
            return ports
    raise AssertionError(f"{count} free ports cannot be found")


def greeting_of_b(address: str) -> bytes:
    return seal(msgpack.packb([PROTOCOL_VERSION, "g", "b", address]))


def transport(node: str, ports: dict[str, int], group: str = "g") -> WebSocketTransport:
    peers = {peer: f"127.0.0.1:{port}" for peer, port in ports.items() if peer != node}
    return WebSocketTransport(
        group=group, node=node, host="127.0.0.1", port=ports[node], peers=peers
    )


@pytest.fixture
async def pair() -> AsyncIterator[
    tuple[WebSocketTransport, Recorder, WebSocketTransport, Recorder]
]:
    ports = dict(zip(("a", "b"), free_ports(2), strict=True))
    a, b = transport("a", ports), transport("b", ports)
    heard_a, heard_b = Recorder(), Recorder()
    await a.start(heard_a)
    await b.start(heard_b)
    assert await heard_a.next() == ("connected", "b", None)
    assert await heard_b.next() == ("connected", "a", None)
    yield a, heard_a, b, heard_b
    await a.stop()
    await b.stop()


async def test_messages_arrive_in_the_order_in_which_they_were_sent(
    pair: tuple[WebSocketTransport, Recorder, WebSocketTransport, Recorder],
) -> None:
    a, _, _, heard_b = pair
    entry = build_entry(EntryKind.DATA, 4, 2, 480, 7, [b"x" * 300_000])
    append = AppendRequest(2, 3, 1, 3, (entry,))
    sent: list[Message] = [Heartbeat(2, 1), append, Heartbeat(2, 4)]
    for message in sent:
        a.send("b", message)
    assert [await heard_b.next() for _ in sent] == [("message", "a", each) for each in sent]


async def test_a_peer_that_stops_is_lost_and_found_again(
    pair: tuple[WebSocketTransport, Recorder, WebSocketTransport, Recorder],
) -> None:
    a, heard_a, b, _ = pair
    await b.stop()
    assert await heard_a.next() == ("lost", "b", None)
    a.send("b", Heartbeat(1, 0))  # goes nowhere, harms nobody
    again = Recorder()
    await b.start(again)
    assert await heard_a.next() == ("connected", "b", None)
    assert await again.next() == ("connected", "a", None)


def test_what_is_sent_on_a_connection_that_broke_a_moment_ago_is_lost_and_no_more() -> None:
    """On uvloop, as a broker runs: it tells a closed connection from one that breaks."""

    async def scenario() -> None:
        ports = dict(zip(("a", "b"), free_ports(2), strict=True))
        a, b = transport("a", ports), transport("b", ports)
        heard = Recorder()
        await a.start(heard)
        await b.start(Recorder())
        try:
            assert await heard.next() == ("connected", "b", None)
            a.reset("b")
            while heard.events.empty():  # turn by turn, as the connection is taken down
                a.send("b", Heartbeat(1, 0))
                await asyncio.sleep(0)
            assert await heard.next() == ("lost", "b", None)
        finally:
            await a.stop()
            await b.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())


async def test_a_reset_link_comes_back(
    pair: tuple[WebSocketTransport, Recorder, WebSocketTransport, Recorder],
) -> None:
    a, heard_a, _, heard_b = pair
    a.reset("b")
    for heard in (heard_a, heard_b):
        assert (await heard.next())[0] == "lost"
        assert (await heard.next())[0] == "connected"


async def test_a_link_that_is_reset_again_and_again_comes_back_later_each_time(
    pair: tuple[WebSocketTransport, Recorder, WebSocketTransport, Recorder],
) -> None:
    a, heard_a, _, _ = pair
    loop = asyncio.get_running_loop()
    pauses = []
    for _ in range(4):
        began = loop.time()
        a.reset("b")
        assert await heard_a.next() == ("lost", "b", None)
        assert await heard_a.next() == ("connected", "b", None)
        pauses.append((loop.time() - began) / DIAL_SECONDS_FIRST)
    # A loop may wake up a little early, by the resolution of its clock.
    assert all(pause > least for pause, least in zip(pauses, (0.9, 1.9, 3.9, 7.9), strict=True))


@pytest.mark.parametrize(
    "greeting",
    [
        [PROTOCOL_VERSION + 1, "g", "b", "127.0.0.1:1"],
        [PROTOCOL_VERSION, "other", "b", "127.0.0.1:1"],
        [PROTOCOL_VERSION, "g", "a", "127.0.0.1:1"],
        [PROTOCOL_VERSION, "g", 5, "127.0.0.1:1"],
        [PROTOCOL_VERSION, "g", "b", 1],
        ["too", "short"],
        17,
    ],
)
async def test_a_stranger_is_refused_and_told_so(greeting: object) -> None:
    ports = dict(zip(("a", "b"), free_ports(2), strict=True))
    a = transport("a", ports)
    await a.start(Recorder())
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(f"http://127.0.0.1:{ports['a']}{PATH}") as connection,
        ):
            await connection.send_bytes(seal(msgpack.packb(greeting)))
            answer = await connection.receive(timeout=10)
            assert answer.type is aiohttp.WSMsgType.CLOSE
            assert answer.data == aiohttp.WSCloseCode.POLICY_VIOLATION
    finally:
        await a.stop()


async def test_a_page_in_a_browser_is_no_peer() -> None:
    """A browser lets any page open a WebSocket anywhere, and says which page it is."""
    [port] = free_ports(1)
    a = transport("a", {"a": port})
    await a.start(Recorder())
    try:
        async with aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await session.ws_connect(
                    f"http://127.0.0.1:{port}{PATH}", origin="http://evil.example"
                )
        assert refused.value.status == 403
    finally:
        await a.stop()


async def test_a_request_that_is_no_http_is_one_line_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ports = dict(zip(("a", "b"), free_ports(2), strict=True))
    a = transport("a", ports)
    await a.start(Recorder())
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", ports["a"])
        writer.write(b"GET / HTTP/1.1\r\n\r\n")  # and no Host
        assert b"400 Bad Request" in await reader.readline()
        writer.close()
    finally:
        await a.stop()
    (told,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert (told.levelname, told.exc_info) == ("WARNING", None)
    assert "127.0.0.1: Missing 'Host' header" in told.getMessage()
    assert "\n" not in told.getMessage()


async def test_a_port_that_is_taken_is_told_and_nothing_is_left_open() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        a = transport("a", {"a": taken.getsockname()[1], "b": 1})
        with pytest.raises(OSError, match="in use"):
            await a.start(Recorder())
    await a.stop()  # who could not start it all stops what there may be
    await a.start(Recorder())
    await a.stop()


async def test_a_peer_that_comes_in_while_the_node_stops_is_not_dialled() -> None:
    [port] = free_ports(1)
    a = transport("a", {"a": port})
    await a.start(Recorder())
    url = f"http://127.0.0.1:{port}{PATH}"
    async with aiohttp.ClientSession() as session:
        b, c = await session.ws_connect(url, autoclose=False), await session.ws_connect(url)
        await b.send_bytes(greeting_of_b("127.0.0.1:1"))
        async with asyncio.timeout(10):
            while "b" not in a._links or a._links["b"].speaking is None:  # noqa: ASYNC110 - untold
                await asyncio.sleep(0)
            stopping = asyncio.create_task(a.stop())
            assert (await b.receive()).type is aiohttp.WSMsgType.CLOSE
            await c.send_bytes(seal(msgpack.packb([PROTOCOL_VERSION, "g", "c", "127.0.0.1:1"])))
            while "c" not in a._links:  # noqa: ASYNC110 - nobody is told of it
                await asyncio.sleep(0)
            link = a._links["c"]
            assert not stopping.done()
            await b.close()
            await stopping
    assert link.task is None


async def test_a_peer_that_is_gone_before_it_is_answered_is_no_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    prepare = web.WebSocketResponse.prepare

    async def gone(
        connection: web.WebSocketResponse, request: web.BaseRequest
    ) -> AbstractStreamWriter:
        assert request.transport is not None
        request.transport.close()
        return await prepare(connection, request)

    monkeypatch.setattr(web.WebSocketResponse, "prepare", gone)
    [port] = free_ports(1)
    a = transport("a", {"a": port})
    await a.start(Recorder())
    try:
        async with aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.ClientError):
                await session.ws_connect(f"http://127.0.0.1:{port}{PATH}")
    finally:
        await a.stop()
    assert [told for told in caplog.records if told.levelno >= logging.WARNING] == []


async def test_a_peer_that_dials_again_before_its_old_link_is_known_dead_is_lost_and_found(
    pair: tuple[WebSocketTransport, Recorder, WebSocketTransport, Recorder],
) -> None:
    """What was under way on the old link is gone, so the core must begin with that peer anew."""
    a, heard_a, _, _ = pair
    link = a._links["b"]
    assert link.socket is not None
    link.socket = None  # the old socket neither closes nor answers: nobody there any more
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(f"http://127.0.0.1:{a._port}{PATH}") as connection,
    ):
        await connection.send_bytes(greeting_of_b(link.address))
        async with asyncio.timeout(2):
            assert await heard_a.next() == ("lost", "b", None)
            assert await heard_a.next() == ("connected", "b", None)


async def test_a_damaged_frame_closes_the_link_and_is_told_and_the_link_comes_back(
    pair: tuple[WebSocketTransport, Recorder, WebSocketTransport, Recorder],
    caplog: pytest.LogCaptureFixture,
) -> None:
    a, heard_a, _, heard_b = pair
    speaking = a._links["b"].speaking
    assert speaking is not None
    await speaking.send_bytes(seal(b"content")[:-1] + b"?")
    assert await heard_b.next() == ("lost", "a", None)
    assert await heard_b.next() == ("connected", "a", None)
    assert (await heard_a.next())[0] == "lost"
    [told] = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert told.startswith("dropping the link to a: a peer frame of 11 bytes is damaged: its CRC")


async def test_a_damaged_greeting_is_refused() -> None:
    ports = dict(zip(("a", "b"), free_ports(2), strict=True))
    a = transport("a", ports)
    await a.start(Recorder())
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(f"http://127.0.0.1:{ports['a']}{PATH}") as connection,
        ):
            greeting = bytearray(greeting_of_b("127.0.0.1:1"))
            greeting[-1] ^= 1
            await connection.send_bytes(bytes(greeting))
            answer = await connection.receive(timeout=10)
            assert (answer.type, answer.data) == (
                aiohttp.WSMsgType.CLOSE,
                aiohttp.WSCloseCode.POLICY_VIOLATION,
            )
            assert "damaged" in str(answer.extra)
    finally:
        await a.stop()
