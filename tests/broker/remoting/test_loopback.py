"""Server and client over real sockets, in both event loops that can run them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from broker.limits import RemotingLimits
from broker.remoting.client import RemotingClient
from broker.remoting.connection import Connection
from broker.remoting.protocol.errors import ConnectFailedError, ConnectionLostError
from broker.remoting.protocol.frame import Frame
from broker.remoting.server import RemotingServer


def echo(connection: Connection, request: Frame) -> None:
    connection.respond(request, body=(request.body,))


@pytest.fixture
async def server(each_loop: asyncio.AbstractEventLoop) -> AsyncIterator[RemotingServer]:
    server = RemotingServer(each_loop, "127.0.0.1", 0, echo)
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def client(each_loop: asyncio.AbstractEventLoop) -> AsyncIterator[RemotingClient]:
    client = RemotingClient(each_loop)
    yield client
    await client.close()


@pytest.fixture
def address(server: RemotingServer) -> str:
    return f"127.0.0.1:{server.port}"


async def test_many_small_requests_in_flight_are_all_answered(
    client: RemotingClient, address: str
) -> None:
    answers = [client.invoke_nowait(address, 310, None, (b"%d" % n,)) for n in range(2000)]
    assert [(await answer).body for answer in answers] == [b"%d" % n for n in range(2000)]


@pytest.mark.skipif(not hasattr(socket, "TCP_NOTSENT_LOWAT"), reason="the system has no limit")
async def test_the_kernel_keeps_little_of_what_a_peer_does_not_read(
    server: RemotingServer, client: RemotingClient, address: str
) -> None:
    await client.invoke(address, 310)
    (connection,) = server.connections
    assert connection._transport is not None
    own = connection._transport.get_extra_info("socket")
    kept = own.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT)
    assert kept == RemotingLimits().kernel_unsent


async def test_large_bodies_go_both_ways_whole(client: RemotingClient, address: str) -> None:
    body = bytes(range(256)) * 16_384
    answers = [client.invoke_nowait(address, 310, None, (body, b"%d" % n)) for n in range(3)]
    assert [(await answer).body for answer in answers] == [body + b"%d" % n for n in range(3)]


async def test_body_parts_of_any_bytes_type_are_sent(client: RemotingClient, address: str) -> None:
    large = bytes(range(256)) * 1024
    parts = (memoryview(large)[1:], bytearray(b"and"), b"more")
    answer = await client.invoke(address, 310, None, parts)
    assert answer.body == large[1:] + b"andmore"


async def test_the_server_sees_the_address_of_its_client(
    server: RemotingServer, client: RemotingClient, address: str
) -> None:
    await client.invoke(address, 310)
    (connection,) = server.connections
    assert connection.remote_host_bytes[:4] == bytes([127, 0, 0, 1])
    port = int.from_bytes(connection.remote_host_bytes[4:], "big")
    assert connection.remote_address == f"127.0.0.1:{port}"


async def test_a_stopped_server_fails_what_waits(
    server: RemotingServer, client: RemotingClient, address: str
) -> None:
    await client.invoke(address, 310)
    waiting = client.invoke_nowait(address, 310)
    server.connections[0].abort()
    with pytest.raises(ConnectionLostError):
        await waiting


async def test_the_vip_port_is_served_as_the_other_one() -> None:
    loop = asyncio.get_running_loop()
    server, vip = await listening_with_vip_port(loop)
    client = RemotingClient(loop)
    for port in (server.port, vip):
        answer = await client.invoke(f"127.0.0.1:{port}", 310, None, (b"hello",))
        assert answer.body == b"hello"
    assert len(server.connections) == 2
    await server.stop()
    assert server.connections == []
    with pytest.raises(ConnectionLostError):
        await client.invoke(f"127.0.0.1:{vip}", 310)
    await client.close()


async def test_nothing_listens_where_the_vip_port_is_taken() -> None:
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = RemotingServer(loop, "127.0.0.1", 0, echo, vip_port=taken.getsockname()[1])
        with pytest.raises(OSError, match="in use"):
            await server.start()
    client = RemotingClient(loop)
    with pytest.raises(ConnectFailedError):
        await client.invoke(f"127.0.0.1:{server.port}", 310)
    await client.close()


async def listening_with_vip_port(
    loop: asyncio.AbstractEventLoop,
) -> tuple[RemotingServer, int]:
    """With a second port that the system has just given, and that is asked for until it is free."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as given:
            vip: int = given.getsockname()[1]
        server = RemotingServer(loop, "127.0.0.1", 0, echo, vip_port=vip)
        try:
            await server.start()
        except OSError:
            continue
        return server, vip
