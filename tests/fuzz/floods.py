"""Attacks by quantity: connections, unread answers, unfinished requests, large inputs, many names.

Each attack goes on for some seconds and returns how many inputs it sent.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from itertools import count
from typing import NamedTuple

from broker.remoting.protocol.codes import FLAG_ONE_WAY, RequestCode
from broker.remoting.protocol.frame import encode_request
from tests.broker.single_broker import batched, pull_ext, send_ext
from tests.fuzz.inputs import CONNECT_SECONDS, websocket_frame
from tests.fuzz.samples import TOPICS

ORDERS, BIG = "orders", "big"
MANY = 40
"""Connections of an attack that uses them all the time."""

IDLE = 2000
"""Connections to each port that send nothing."""

UNFINISHED_BYTES = 1 << 20
FRAME_BYTES = 15 << 20
SMALL_WINDOW = 8 << 10


class Address(NamedTuple):
    """The address of a port."""

    host: str
    port: int


class Ports(NamedTuple):
    """All ports that listen."""

    remoting: Address
    http: Address
    peer: Address
    namesrv: Address


Flood = Callable[[Ports, float], Awaitable[int]]


def request(code: int, ext: Mapping[str, str], body: bytes = b"", *, flag: int = 0) -> bytes:
    """A frame."""
    return bytes(encode_request(code, 1, ext, len(body), flag=flag)) + body


async def _connected(address: Address, *, window: int = 0) -> socket.socket:
    connection = socket.socket()
    connection.setblocking(False)
    if window:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await loop.sock_connect(connection, address)
    except BaseException:
        connection.close()
        raise
    return connection


async def _pour(
    address: Address,
    seconds: float,
    inputs: Iterator[bytes],
    *,
    connections: int = MANY,
    reads: bool = True,
    again: bool = True,
) -> int:
    """Writes inputs to so many connections for so long. Broken ones are made again. With
    ``again`` off a connection gets one input, and is then held."""
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + seconds
    sent = 0

    async def read(connection: socket.socket) -> None:
        with suppress(OSError):
            while await loop.sock_recv(connection, 1 << 18):
                pass

    async def pour() -> None:
        nonlocal sent
        connection = await _connected(address, window=0 if reads else SMALL_WINDOW)
        reading = loop.create_task(read(connection)) if reads else None
        try:
            for data in inputs:
                if loop.time() > ends_at:
                    break
                sent += 1
                await loop.sock_sendall(connection, data)
                if not again:
                    await asyncio.sleep(max(0.0, ends_at - loop.time()))
        finally:
            if reading is not None:
                reading.cancel()
            connection.close()

    async def keep_pouring() -> None:
        while loop.time() < ends_at:
            with suppress(OSError, TimeoutError):
                await pour()
            await asyncio.sleep(0.02)

    tasks = [loop.create_task(keep_pouring()) for _ in range(connections)]
    await asyncio.wait(tasks, timeout=seconds)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return sent


def _repeated(data: bytes) -> Iterator[bytes]:
    while True:
        yield data


async def idle_connections(ports: Ports, seconds: float) -> int:
    found: list[socket.socket] = []
    for address in ports:
        for _ in range(IDLE):
            with suppress(OSError, TimeoutError):
                found.append(await _connected(address))
    await asyncio.sleep(seconds)
    for connection in found:
        connection.close()
    return len(found)


async def unread_answers(ports: Ports, seconds: float) -> int:
    """Each pull answers 4 MiB, and nobody reads."""
    pull = pull_ext(BIG, 0, 0) | {"maxMsgNums": "1024"}
    pulls = request(RequestCode.PULL_MESSAGE, pull) * 64
    return 64 * await _pour(
        ports.remoting, seconds, _repeated(pulls), connections=8 * MANY, reads=False
    )


async def unread_small_answers(ports: Ports, seconds: float) -> int:
    """As above, but each connection stays below the size at which it is no longer read."""
    pull = pull_ext(BIG, 0, 0) | {"maxMsgNums": "10"}
    pulls = request(RequestCode.PULL_MESSAGE, pull) * 12
    return 12 * await _pour(
        ports.remoting, seconds, _repeated(pulls), connections=IDLE, reads=False, again=False
    )


async def unfinished_frames(ports: Ports, seconds: float) -> int:
    head = struct.pack(">ii", FRAME_BYTES, 20) + bytes(UNFINISHED_BYTES)
    return await _pour(ports.remoting, seconds, _repeated(head), connections=8 * MANY, again=False)


async def small_frames(ports: Ports, seconds: float) -> int:
    """One-way requests without a pause."""
    frames = request(RequestCode.GET_MAX_OFFSET, {}, flag=FLAG_ONE_WAY) * 2000
    return 2000 * await _pour(ports.remoting, seconds, _repeated(frames), connections=2 * MANY)


async def sends(ports: Ports, seconds: float) -> int:
    """Messages without a pause, whose answers are read."""
    frames = request(RequestCode.SEND_MESSAGE_V2, send_ext(ORDERS, 0), b"x" * 500) * 50
    return 50 * await _pour(ports.remoting, seconds, _repeated(frames))


async def new_names(ports: Ports, seconds: float) -> int:
    """Requests with new names of topics, groups, offsets and counters."""
    numbers = count()

    def make() -> Iterator[bytes]:
        for number in numbers:
            topic = f"made-up-{number}"
            offset = {"consumerGroup": f"g-{number}", "topic": topic, "queueId": "0"}
            create = {"topic": topic, "defaultTopic": "TBW102", "perm": "6"}
            create |= {"readQueueNums": "16", "writeQueueNums": "16"}
            group = b'{"groupName":"g-%d"}' % number
            beat = b'{"clientID":"c","producerDataSet":[{"groupName":"p-%d"}]}' % number
            yield (
                request(RequestCode.SEND_MESSAGE_V2, send_ext(f"auto-{number}", 0), b"x")
                + request(RequestCode.UPDATE_AND_CREATE_TOPIC, create)
                + request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, group)
                + request(RequestCode.UPDATE_CONSUMER_OFFSET, offset | {"commitOffset": "0"})
                + request(RequestCode.HEART_BEAT, {}, beat)
                + request(RequestCode.GET_ALL_TOPIC_CONFIG, {})
            )

    return 6 * await _pour(ports.remoting, seconds, make(), connections=4)


async def held_pulls(ports: Ports, seconds: float) -> int:
    pull = pull_ext(ORDERS, 1, 0) | {"sysFlag": "6", "suspendTimeoutMillis": "15000"}
    pull |= {"subscription": "a IN ('x') OR " * 100 + "b = 1", "expressionType": "SQL92"}
    return 50 * await _pour(
        ports.remoting, seconds, _repeated(request(RequestCode.PULL_MESSAGE, pull) * 50)
    )


async def filters(ports: Ports, seconds: float) -> int:
    """Expressions that select nothing of many messages."""
    numbers = count()

    def make() -> Iterator[bytes]:
        for number in numbers:
            text = f"a IN ({number},{','.join(map(str, range(2000)))}) AND b > 1"
            pull = pull_ext(ORDERS, 0, 0) | {"sysFlag": "4", "maxMsgNums": "1024"}
            yield request(
                RequestCode.PULL_MESSAGE, pull | {"subscription": text, "expressionType": "SQL92"}
            )

    return await _pour(ports.remoting, seconds, make())


async def large_batches(ports: Ports, seconds: float) -> int:
    """Batches of messages with as many keys as allowed."""
    keys = b"KEYS\x01" + b" ".join(b"%d" % n for n in range(250)) + b"\x02"
    body = batched(keys) * 500
    head = send_ext(ORDERS, 0) | {"m": "true"}
    frame = request(RequestCode.SEND_BATCH_MESSAGE, head, body)
    return await _pour(ports.remoting, seconds, _repeated(frame), connections=MANY // 2)


async def odd_json(ports: Ports, seconds: float) -> int:
    """Heartbeats as fastjson writes them, with keys that are objects."""
    body = b'{"a":{' + b"1:{2:[]}," * 25_000 + b"0:0}}"
    frame = request(RequestCode.HEART_BEAT, {}, body)
    return await _pour(ports.remoting, seconds, _repeated(frame), connections=MANY // 2)


async def large_heartbeats(ports: Ports, seconds: float) -> int:
    numbers = count()

    def make() -> Iterator[bytes]:
        for number in numbers:
            topics = b",".join(
                b'{"topic":"t%d","subString":"%b","subVersion":%d}' % (n, b"a||" * 200, number)
                for n in range(1000)
            )
            yield request(
                RequestCode.HEART_BEAT,
                {},
                b'{"clientID":"c","consumerDataSet":[{"groupName":"g%d","subscriptionDataSet":[%b]}]}'
                % (number % 50, topics),
            )

    return await _pour(ports.remoting, seconds, make(), connections=MANY // 4)


async def registrations(ports: Ports, seconds: float) -> int:
    """Registrations of brokers, topics and pairs at the NameServer, and lists of all topics."""
    numbers = count()

    def make() -> Iterator[bytes]:
        for number in numbers:
            who = {"clusterName": f"c{number % 50}", "brokerName": f"b{number}", "brokerId": "0"}
            table = b",".join(
                b'"t%d-%d":{"readQueueNums":4,"writeQueueNums":4,"perm":6}' % (number, n)
                for n in range(2000)
            )
            body = TOPICS.replace(b'"topicConfigTable":{', b'"topicConfigTable":{' + table + b",")
            pair = {"namespace": f"n{number % 50}", "key": f"k{number}", "value": "v" * 400}
            yield (
                request(RequestCode.REGISTER_BROKER, who | {"brokerAddr": f"x:{number}"}, body)
                + request(RequestCode.PUT_KV_CONFIG, pair)
                + request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {})
                + request(RequestCode.GET_BROKER_CLUSTER_INFO, {})
            )

    return 4 * await _pour(ports.namesrv, seconds, make(), connections=MANY // 4)


async def http_bodies(ports: Ports, seconds: float) -> int:
    """Large bodies that do not end, and many that do."""
    head = b"POST /topics/orders/messages HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    slow = head + b"Content-Length: 4000000\r\n\r\n" + b'{"body":"' + b"x" * 1_000_000
    whole = b'{"body":"%b"}' % (b"y" * 100_000)
    fast = head + b"Content-Length: %d\r\n\r\n%b" % (len(whole), whole)
    sent = await asyncio.gather(
        _pour(ports.http, seconds, _repeated(slow), connections=5 * MANY, again=False),
        _pour(ports.http, seconds, _repeated(fast), connections=MANY),
    )
    return sum(sent)


async def no_http(ports: Ports, seconds: float) -> int:
    """Bytes that are not HTTP, behind a body that nothing reads."""
    head = b"POST /nowhere HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000000\r\n\r\n"
    data = head + b"x" * (9 << 20)
    return await _pour(ports.http, seconds, _repeated(data), connections=2 * MANY)


async def peer_messages(ports: Ports, seconds: float) -> int:
    """Large frames before any greeting, and after it."""
    head = (
        b"GET /dledger HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    data = head + websocket_frame(bytes(UNFINISHED_BYTES))
    return await _pour(ports.peer, seconds, _repeated(data), connections=2 * MANY)


FLOODS: Mapping[str, Flood] = {
    "idle connections": idle_connections,
    "unread answers": unread_answers,
    "unread small answers": unread_small_answers,
    "unfinished frames": unfinished_frames,
    "small frames": small_frames,
    "sends": sends,
    "new names": new_names,
    "held pulls": held_pulls,
    "filters": filters,
    "large batches": large_batches,
    "odd JSON": odd_json,
    "large heartbeats": large_heartbeats,
    "registrations": registrations,
    "HTTP bodies": http_bodies,
    "no HTTP": no_http,
    "peer messages": peer_messages,
}
"""By their names."""
