"""Messages of peers: their sizes, their parts, and how early they come."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from dledger.config import PeerLimits
from dledger.raft.messages import Heartbeat
from dledger.wire.codec import MESSAGE_BYTES_MAX, MessageEncoder
from dledger.wire.peer_link import PATH
from dledger.wire.websocket_frames import BUFFER_SIZE, ROOM_BYTES, MessageReader, frame_header
from tests.dledger.wire.peer_node import node_a, until

# --- messages


class Inner(asyncio.Protocol):
    """aiohttp's side of a connection."""


def test_a_size_that_is_only_stated_takes_no_memory() -> None:
    reader = MessageReader(Inner(), MESSAGE_BYTES_MAX, lambda _frame: True)
    head = frame_header(MESSAGE_BYTES_MAX)
    reader.get_buffer(-1)[: len(head)] = head
    reader.buffer_updated(len(head))
    assert len(reader._buffer) <= BUFFER_SIZE + 2 * ROOM_BYTES
    arrived = len(head)
    while arrived < 8 << 20:
        room = len(reader.get_buffer(-1))
        assert room > 0
        reader.buffer_updated(room)
        arrived += room
        assert len(reader._buffer) <= 4 * arrived + 2 * ROOM_BYTES


@pytest.mark.parametrize("size", [BUFFER_SIZE, 3 << 20, 17 << 20])
def test_a_large_message_that_comes_in_parts_is_whole(size: int) -> None:
    heard: list[bytes] = []

    def received(frame: memoryview) -> bool:
        heard.append(bytes(frame))
        return True

    reader = MessageReader(Inner(), MESSAGE_BYTES_MAX, received)
    payload = bytes(range(256)) * (size // 256)
    data = memoryview((frame_header(size) + payload) * 2)
    while data:
        buffer = reader.get_buffer(-1)
        part = min(len(buffer), len(data), 300_001)
        buffer[:part] = data[:part]
        reader.buffer_updated(part)
        data = data[part:]
    assert [each == payload for each in heard] == [True, True]


async def test_half_a_message_ends_the_link(caplog: pytest.LogCaptureFixture) -> None:
    """And a whole one before it does not help."""
    peers: dict[str, str] = {}

    async def handshaken(request: web.Request) -> web.WebSocketResponse:
        connection = web.WebSocketResponse()
        await connection.prepare(request)
        await connection.receive()
        assert request.transport is not None
        message = b"".join(MessageEncoder().encode(Heartbeat(1, 0)))
        request.transport.write(frame_header(len(message)) + message + frame_header(100) + b"half")
        await connection.receive()
        return connection

    app = web.Application()
    app.router.add_get(PATH, handshaken)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    [(host, port)] = runner.addresses
    peers["b"] = f"{host}:{port}"
    try:
        async with node_a(peers=peers):
            await until(lambda: "half a message" in caplog.text)
    finally:
        await runner.cleanup()


async def test_what_comes_early_is_bounded() -> None:
    entry = b"".join(MessageEncoder().encode(Heartbeat(1, 0)))
    done = asyncio.Event()

    async def talkative(request: web.Request) -> web.WebSocketResponse:
        connection = web.WebSocketResponse()
        await connection.prepare(request)
        await connection.receive()
        for _ in range(200):
            await connection.send_bytes(entry)
        done.set()
        await connection.receive()
        return connection

    app = web.Application()
    app.router.add_get(PATH, talkative)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    [(host, port)] = runner.addresses
    try:
        limits = PeerLimits(early_bytes_max=len(entry) - 1)
        async with node_a(limits, {"b": f"{host}:{port}"}) as (a, _, _):
            await done.wait()
            link = a._links["b"]
            await until(lambda: link.reader is not None and link.reader.messages == 200)
            assert not link.early
    finally:
        await runner.cleanup()
