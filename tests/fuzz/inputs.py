"""Attacks by contents: requests and bytes that are nearly right, to every port.

Each attack returns how many inputs it sent.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random

from broker.remoting.client import RemotingClient
from broker.remoting.protocol.errors import CallError
from broker.security.credentials import ClientSecurity
from dledger.wire.codec import MessageEncoder
from dledger.wire.greeting import Greeting, pack_greeting
from dledger.wire.peer_link import PATH
from tests.fuzz.mutation import mutated
from tests.fuzz.requests import Requests
from tests.fuzz.samples import PEER_MESSAGES

CLIENTS = 4
IN_FLIGHT = 32
ANSWER_SECONDS = 3.0
STREAMS = 8
"""Connections that are written to at the same time."""

INPUTS_IN_STREAM = 20
READ_SECONDS = 0.05
CONNECT_SECONDS = 5.0

Make = Callable[[], Iterator[bytes]]
"""Makes the inputs of one connection."""


async def say_requests(
    address: str, requests: Requests, seconds: float, security: ClientSecurity
) -> int:
    """Whole requests over few connections, many in flight, and learns from the answers."""
    loop = asyncio.get_running_loop()
    clients = [
        RemotingClient(loop, security=security, serialization=number % 2)
        for number in range(CLIENTS)
    ]
    ends_at = loop.time() + seconds
    sent = 0

    async def ask(client: RemotingClient) -> None:
        nonlocal sent
        while loop.time() < ends_at:
            code, ext, body = requests.next()
            sent += 1
            try:
                answer = await client.invoke(address, code, ext, (body,), timeout=ANSWER_SECONDS)
            except CallError:
                continue
            except struct.error:  # a field is too long for the binary form
                continue
            requests.learn(code, answer)

    await asyncio.gather(*(ask(client) for client in clients for _ in range(IN_FLIGHT)))
    for client in clients:
        await client.close()
    return sent


async def say_bytes(
    host: str, port: int, make: Make, seconds: float, *, tls: ssl.SSLContext | None = None
) -> int:
    """Streams of inputs, a connection for each, with ``tls`` behind its handshake; answers are read
    for a moment."""
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + seconds
    sent = 0

    async def stream() -> None:
        nonlocal sent
        async with asyncio.timeout(CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(host, port, ssl=tls)
        try:
            for data in make():
                sent += 1
                writer.write(data)
                await writer.drain()
            with suppress(TimeoutError):
                async with asyncio.timeout(READ_SECONDS):
                    while await reader.read(1 << 16):
                        pass
        finally:
            writer.close()

    async def streams() -> None:
        while loop.time() < ends_at:
            with suppress(OSError, TimeoutError):
                await stream()

    await asyncio.gather(*(streams() for _ in range(STREAMS)))
    return sent


def frames(requests: Requests) -> Iterator[bytes]:
    """Frames of the remoting protocol, half of them broken."""
    for number in range(INPUTS_IN_STREAM):
        yield requests.frame(number)


# --- HTTP

PATHS = (
    b"/",
    b"/cluster",
    b"/nodes",
    b"/metrics",
    b"/livez",
    b"/readyz",
    b"/status",
    b"/topics",
    b"/groups",
    b"/topics/orders/messages",
    b"/topics/orders/recalls",
    b"/topics/orders/queues/0/messages?offset=0&count=32&wait_ms=0",
    b"/topics/orders/queues/0/messages?offset=-1&count=99999&wait_ms=10",
    b"/topics/%2e%2e/queues/0/messages?offset=1e9",
    b"/snapshot",
)
HTTP_BODIES = (
    b"",
    b'{"body":"a","tags":"t","keys":["k"],"properties":{"a":"b"},"queue_id":0}',
    b'{"body_base64":"AAAA"}',
    b'{"directory":"/tmp/../etc/x"}',
    b'{"directory":""}',
    b'{"recall_handle":"djEgb3JkZXJzIGJyb2tlci1hIDEgayAw"}',
)
HEADERS = (
    b"Content-Type: application/json",
    b"Content-Type: text/plain",
    b"Origin: http://evil.example",
    b"Transfer-Encoding: chunked",
    b"Content-Length: 5",
    b"Expect: 100-continue",
    b"Upgrade: websocket",
    b"Authorization: Bearer a.5.YWFh",
    b"Authorization: Basic YTpi",
    b"Content-Encoding: gzip",
    b"Connection: close",
)


def http_requests(rng: Random) -> Iterator[bytes]:
    """The requests of one connection. A broken one ends it."""
    for _ in range(rng.choice((1, 3, INPUTS_IN_STREAM))):
        body = rng.choice(HTTP_BODIES)
        path = rng.choice(PATHS)
        if rng.random() < 0.4:
            body = mutated(rng, body, HTTP_BODIES)
        if rng.random() < 0.3:
            path = mutated(rng, path, PATHS)
        headers = [b"Host: 127.0.0.1", b"Content-Length: %d" % len(body)]
        headers += rng.sample(HEADERS, rng.choice((0, 0, 1, 3)))
        method = rng.choice((b"GET", b"GET", b"POST", b"POST", b"HEAD", b"PUT", b"OPTIONS", b"X"))
        whole = b"%b %b HTTP/1.1\r\n%b\r\n\r\n%b" % (method, path, b"\r\n".join(headers), body)
        yield mutated(rng, whole, PATHS) if rng.random() < 0.3 else whole


# --- peers

HANDSHAKE = (
    f"GET {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
).encode()
MESSAGES = [b"".join(map(bytes, MessageEncoder().encode(message))) for message in PEER_MESSAGES]
GREETINGS = [
    pack_greeting(Greeting(group, node, "127.0.0.1:9"))
    for group in ("broker-a", "other")
    for node in ("n1", "n7", "x" * 60)
]
_SIZE_16, _SIZE_64 = 126, 127


def websocket_frame(message: bytes) -> bytes:
    """A frame with a mask of zeros, as a client must send it."""
    size = len(message)
    if size < _SIZE_16:
        head = struct.pack(">BB", 0x82, 0x80 | size)
    elif size < 1 << 16:
        head = struct.pack(">BBH", 0x82, 0x80 | _SIZE_16, size)
    else:
        head = struct.pack(">BBQ", 0x82, 0x80 | _SIZE_64, size)
    return head + bytes(4) + message


def peer_frames(rng: Random) -> Iterator[bytes]:
    """The frames of one connection: a greeting, then messages of peers, half of them broken."""
    yield HANDSHAKE if rng.random() < 0.9 else mutated(rng, HANDSHAKE, PATHS)
    greeting = rng.choice(GREETINGS)
    yield websocket_frame(greeting if rng.random() < 0.8 else mutated(rng, greeting, MESSAGES))
    for _ in range(INPUTS_IN_STREAM):
        message = rng.choice(MESSAGES)
        if rng.random() < 0.5:
            message = mutated(rng, message, MESSAGES)
        frame = websocket_frame(message)
        yield mutated(rng, frame, MESSAGES) if rng.random() < 0.2 else frame
