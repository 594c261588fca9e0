"""Peers that speak wrongly or break off: the link is dialled anew, and an error is told once.

The peer is played on a bare socket of loopback, for what no WebSocket library would do. It never
answers a closing frame: whoever waits for one, hangs.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from itertools import pairwise

import aiohttp
import pytest
import uvloop

from dledger.raft.messages import Heartbeat
from dledger.wire.codec import MessageEncoder, seal
from dledger.wire.peer_link import PATH
from dledger.wire.transport import Message
from dledger.wire.websocket_frames import frame_header
from dledger.wire.websocket_transport import DIAL_SECONDS_FIRST, WebSocketTransport
from tests.dledger.wire.test_websocket_transport import free_ports, greeting_of_b

WEBSOCKET_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, 1.3
QUICK_SECONDS = 8.0
"""For a whole test; aiohttp alone would wait ten seconds for the answer to a closing frame."""


def framed(payload: bytes) -> bytes:
    return frame_header(len(payload)) + payload


def message_frame(message: Message) -> bytes:
    return framed(b"".join(MessageEncoder().encode(message)))


FIRST, BAD, LATE, AGAIN = Heartbeat(1, 0), Heartbeat(7, 7), Heartbeat(2, 1), Heartbeat(2, 4)
PING = bytes((0x89, 0))
TEXT = bytes((0x81, 2)) + b"hi"
DAMAGED = framed(seal(b"content")[:-1] + b"?")
RESET_AT_CLOSE = struct.pack("ii", 1, 0)  # struct linger

LOOPS = pytest.mark.parametrize(
    "new_loop", [asyncio.SelectorEventLoop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
NewLoop = Callable[[], asyncio.AbstractEventLoop]


class Handler:
    """Fails at one message, and notes the others, and None for each time that a link is up."""

    def __init__(self) -> None:
        self.heard: list[Message | None] = []
        self.heard_again = asyncio.Event()

    def on_message(self, sender: str, message: Message) -> None:
        if message == BAD:
            raise RuntimeError(f"a message of {sender} is no good")
        self.heard.append(message)
        if message == AGAIN:
            self.heard_again.set()

    def on_peer_connected(self, peer: str, _features: object = ()) -> None:
        self.heard.append(None)

    def on_peer_lost(self, peer: str) -> None:
        """It is dialled anew."""


class BadPeer:
    """Node b, as far as node a can see it."""

    def __init__(self, sockets: ExitStack) -> None:
        self._sockets = sockets
        self._listening = sockets.enter_context(socket.create_server(("127.0.0.1", 0)))
        self._listening.setblocking(False)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listening.getsockname()[1]}"

    async def dialled(self) -> tuple[socket.socket, bytes]:
        """The next connection, and the answer 101 that it waits for."""
        loop = asyncio.get_running_loop()
        connection, _ = await loop.sock_accept(self._listening)
        self._sockets.enter_context(connection)
        asked = b""
        while not asked.endswith(b"\r\n\r\n"):
            asked += await loop.sock_recv(connection, 4096)
        [key] = [
            value.strip()
            for name, _, value in (line.partition(b":") for line in asked.split(b"\r\n"))
            if name.lower() == b"sec-websocket-key"
        ]
        accept = base64.b64encode(hashlib.sha1(key + WEBSOCKET_GUID).digest())
        return connection, (
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n"
            b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n"
        )

    async def let_in(self) -> socket.socket:
        """The next connection, once the node has said who it is: it listens past aiohttp."""
        connection, answer = await self.dialled()
        connection.sendall(answer)
        assert await asyncio.get_running_loop().sock_recv(connection, 4096)
        return connection


@asynccontextmanager
async def node_a(peer: BadPeer, handler: Handler) -> AsyncIterator[str]:
    """Node a, which dials the peer; gives the address at which it is dialled."""
    [port] = free_ports(1)
    a = WebSocketTransport(
        group="g", node="a", host="127.0.0.1", port=port, peers={"b": peer.address}
    )
    await a.start(handler)
    try:
        yield f"http://127.0.0.1:{port}{PATH}"
    finally:
        await a.stop()


async def meet(misbehave: Callable[[BadPeer], Awaitable[None]], times: int) -> list[Message]:
    """What a hears of a peer that dials it, and misbehaves some times before it does not."""
    with ExitStack() as sockets:
        peer, handler = BadPeer(sockets), Handler()
        async with (
            asyncio.timeout(QUICK_SECONDS),
            node_a(peer, handler) as address,
            aiohttp.ClientSession() as session,
            session.ws_connect(address) as dialled,
        ):
            await dialled.send_bytes(greeting_of_b(peer.address))
            for _ in range(times):
                await misbehave(peer)
            connection = await peer.let_in()
            connection.sendall(message_frame(AGAIN))
            await handler.heard_again.wait()
        return [each for each in handler.heard if each is not None]


@LOOPS
@pytest.mark.parametrize(
    ("frames", "told"),
    [
        (message_frame(BAD), "Fatal error"),
        (TEXT, "b sent something else than whole messages"),
        (PING + message_frame(LATE), "b sent something else than whole messages"),
        (DAMAGED, "dropping the link to b: a peer frame of 11 bytes is damaged"),
    ],
    ids=["fails the handler", "text", "message after a ping", "damaged"],
)
def test_a_link_that_carries_what_it_should_not_is_dialled_anew_and_that_is_told_once(
    new_loop: NewLoop, frames: bytes, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def misbehave(peer: BadPeer) -> None:
        connection = await peer.let_in()
        connection.sendall(message_frame(FIRST) + frames)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(meet(misbehave, times=1)) == [FIRST, AGAIN]
    [error] = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert told in error


@LOOPS
@pytest.mark.parametrize("frames", [TEXT, DAMAGED], ids=["text", "damaged"])
def test_a_peer_that_misbehaves_every_time_is_dialled_later_each_time_even_if_it_dials_us(
    new_loop: NewLoop, frames: bytes
) -> None:
    dialled_at: list[float] = []

    async def scenario() -> None:
        with ExitStack() as sockets:
            peer = BadPeer(sockets)
            async with (
                asyncio.timeout(QUICK_SECONDS),
                node_a(peer, Handler()) as address,
                aiohttp.ClientSession() as session,
            ):
                for _ in range(5):
                    connection = await peer.let_in()
                    dialled_at.append(asyncio.get_running_loop().time())
                    connection.sendall(frames)
                    dialled = await session.ws_connect(address)
                    await dialled.send_bytes(greeting_of_b(peer.address))

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(scenario())
    # A loop may wake up a little early, by the resolution of its clock.
    pauses = [(after - before) / DIAL_SECONDS_FIRST for before, after in pairwise(dialled_at)]
    assert all(pause > least for pause, least in zip(pauses, (0.9, 1.9, 3.9, 7.9), strict=True))


@LOOPS
@pytest.mark.parametrize("reset", [False, True], ids=["fin", "rst"])
@pytest.mark.parametrize("sent", [b"", message_frame(LATE)], ids=["at once", "after a message"])
def test_a_connection_that_ends_right_after_its_answer_is_dialled_anew(
    new_loop: NewLoop, sent: bytes, reset: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def misbehave(peer: BadPeer) -> None:
        connection, answer = await peer.dialled()
        if reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
        connection.sendall(answer + sent)
        connection.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(meet(misbehave, times=3)) == [AGAIN]
    told = {each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING}
    assert told <= {"b sent something else than whole messages"}


@LOOPS
def test_a_peer_that_answers_nothing_delays_no_stop(new_loop: NewLoop) -> None:
    async def scenario() -> None:
        with ExitStack() as sockets:
            peer = BadPeer(sockets)
            async with asyncio.timeout(QUICK_SECONDS), node_a(peer, Handler()):
                await peer.let_in()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(scenario())


@LOOPS
def test_what_a_peer_says_before_it_can_be_answered_is_heard_when_it_can(new_loop: NewLoop) -> None:
    """It has let us in, and takes the link to be up, before we have read its greeting."""

    async def scenario() -> list[Message | None]:
        with ExitStack() as sockets:
            peer, handler = BadPeer(sockets), Handler()
            async with (
                asyncio.timeout(QUICK_SECONDS),
                node_a(peer, handler) as address,
                aiohttp.ClientSession() as session,
            ):
                connection = await peer.let_in()
                connection.sendall(message_frame(FIRST) + message_frame(LATE))
                async with session.ws_connect(address) as dialled:
                    assert handler.heard == []
                    await dialled.send_bytes(greeting_of_b(peer.address))
                    connection.sendall(message_frame(AGAIN))
                    await handler.heard_again.wait()
            return handler.heard

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(scenario()) == [None, FIRST, LATE, AGAIN]
