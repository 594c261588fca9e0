"""The relay of a permissive gRPC port, by real sockets, in both event loops that can run it."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from broker.grpc.relay import Relay
from broker.limits import GRPC
from broker.security.port_tls import port_tls
from dledger.wire.endpoint import Endpoint
from dledger.wire.peer_identity import PeerIdentity
from dledger.wire.tls_contexts import TlsFiles
from tests.support.certificates import write_tls_files

pytestmark = pytest.mark.processes

SECONDS = 10.0
CONNECTIONS = 3


class Behind:
    """What the relay carries to: it tells the port that it sees, and keeps what comes."""

    def __init__(self) -> None:
        self.got: dict[int, int] = {}
        self.ended: list[int] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen = writer.get_extra_info("peername")[1]
        self.got[seen] = 0
        writer.write(b"%05d" % seen)
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                self.got[seen] += len(data)
                writer.write(data)
                await writer.drain()
        self.ended.append(seen)
        writer.close()


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    return write_tls_files(tmp_path, PeerIdentity("DefaultCluster", "broker-a", "n0"))


@pytest.fixture
async def behind() -> Behind:
    return Behind()


@pytest.fixture
async def relay(
    each_loop: asyncio.AbstractEventLoop, files: TlsFiles, behind: Behind
) -> AsyncIterator[Relay]:
    server = await asyncio.start_server(behind.serve, "127.0.0.1", 0)
    relay = Relay(
        each_loop,
        port_tls(files, plain=True, application_protocols=("h2",)),
        Endpoint("127.0.0.1", 0),
        GRPC._replace(connections_max=CONNECTIONS),
    )
    await relay.start(server.sockets[0].getsockname()[1])
    too_late = each_loop.call_later(SECONDS, abort_dialled)  # what a test reads fails then
    yield relay
    too_late.cancel()
    await end(relay, server)


@pytest.fixture
def port(relay: Relay) -> int:
    return port_of(relay)


def port_of(relay: Relay) -> int:
    assert relay._server is not None
    found: int = relay._server.sockets[0].getsockname()[1]
    return found


async def until(done: Callable[[], bool]) -> None:
    for _ in range(500):
        if done():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it does not come")


DIALLED: list[asyncio.StreamWriter] = []
"""By a test."""


def abort_dialled() -> None:
    for writer in DIALLED:
        writer.transport.abort()
    DIALLED.clear()


async def end(relay: Relay, *servers: asyncio.Server) -> None:
    """Nothing stays open: transports end in a later turn of the loop."""
    abort_dialled()
    relay.close()
    for server in servers:
        server.close()
    await asyncio.sleep(0.05)


async def dial(port: int, files: TlsFiles | None = None) -> Any:
    own = None
    if files is not None:
        own = ssl.create_default_context(cafile=files.ca)
        own.set_alpn_protocols(["h2"])
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=own)
    DIALLED.append(writer)
    return reader, writer


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_nothing_is_kept_of_a_connection_that_is_over(
    relay: Relay,
    port: int,
    behind: Behind,
    files: TlsFiles,
    monkeypatch: pytest.MonkeyPatch,
    *,
    tls: bool,
) -> None:
    """A quarter of a megabyte with TLS, for each of those that come and go."""
    monkeypatch.setattr("broker.grpc.relay.CLOSE_SECONDS", 60.0)

    reader, writer = await dial(port, files if tls else None)
    writer.write(b"x")
    await reader.readexactly(6)
    (to_grpc,) = relay._carried.values()
    transport = weakref.ref(to_grpc.transport)
    del to_grpc
    writer.close()
    await until(lambda: bool(behind.ended) and not len(relay))
    await until(lambda: gc.collect() >= 0 and transport() is None)


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_bytes_go_both_ways_and_the_client_is_known_by_its_own_address(
    relay: Relay, port: int, behind: Behind, files: TlsFiles, *, tls: bool
) -> None:
    sent = bytes(range(256)) * 40_000

    reader, writer = await dial(port, files if tls else None)
    writer.write(b"x")
    seen = int(await reader.readexactly(5))
    host, own = writer.get_extra_info("sockname")
    assert relay.client(f"127.0.0.1:{seen}") == (f"{host}:{own}", tls)
    if tls:
        assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
    writer.write(sent)
    assert await reader.readexactly(1 + len(sent)) == b"x" + sent
    writer.close()
    await until(lambda: bool(behind.ended))
    assert behind.got == {seen: 1 + len(sent)}
    await until(lambda: not len(relay))
    assert relay.client(f"127.0.0.1:{seen}") == ("", False)


async def test_who_does_not_read_is_not_buffered_without_end(port: int, behind: Behind) -> None:
    """Both directions stop: what the client has sent stays within buffers of fixed size."""

    _reader, writer = await dial(port)
    writer.transport.pause_reading()
    before = -1
    while sum(behind.got.values()) != before:
        before = sum(behind.got.values())
        for _ in range(64):
            if writer.transport.get_write_buffer_size() < 1 << 20:
                writer.write(bytes(1 << 20))
            await asyncio.sleep(0.005)
    assert before < 64 << 20
    writer.transport.abort()
    await until(lambda: bool(behind.ended))


async def test_connections_have_a_number_and_end_with_the_relay(
    relay: Relay, port: int, behind: Behind
) -> None:
    opened = []
    for _ in range(CONNECTIONS):
        reader, writer = await dial(port)
        opened.append(writer)
        writer.write(b"x")
        await reader.readexactly(6)
    reader, writer = await dial(port)
    writer.write(b"x")
    with suppress(ConnectionResetError):
        assert await reader.read() == b""
    assert len(relay) == CONNECTIONS
    relay.close()
    await until(lambda: len(behind.ended) == CONNECTIONS)
    assert len(relay) == 0


async def test_a_server_that_does_not_listen_ends_the_connection(files: TlsFiles) -> None:
    async with asyncio.timeout(SECONDS):
        with socket.create_server(("127.0.0.1", 0)) as closed:
            nobody = closed.getsockname()[1]
        loop = asyncio.get_running_loop()
        relay = Relay(loop, port_tls(files, plain=True), Endpoint("127.0.0.1", 0))
        await relay.start(nobody)
        reader, writer = await dial(port_of(relay))
        writer.write(b"x")
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        await end(relay)
