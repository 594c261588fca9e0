"""TLS on a remoting port, by real sockets, in both event loops that can run it."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import uvloop

from broker.limits import RemotingLimits
from broker.remoting.client import RemotingClient
from broker.remoting.protocol.errors import CallError, ConnectFailedError
from broker.remoting.server import RemotingServer
from broker.security.credentials import NO_SECURITY, ClientSecurity
from broker.security.port_tls import PortTls, port_tls
from dledger.wire.peer_identity import PeerIdentity
from dledger.wire.tls_contexts import TlsFiles
from tests.broker.remoting.test_loopback import echo
from tests.support.certificates import write_tls_files

pytestmark = pytest.mark.processes

NODE = PeerIdentity("DefaultCluster", "broker-a", "n0")
LIMITS = RemotingLimits(handshakes_max=2, connect_seconds=0.5)

Scenario = Callable[[RemotingServer, str], Awaitable[None]]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def new_loop(request: pytest.FixtureRequest) -> Callable[[], asyncio.AbstractEventLoop]:
    made: Callable[[], asyncio.AbstractEventLoop] = request.param
    return made


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    return write_tls_files(tmp_path, NODE)


def run(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
    tls: PortTls,
    scenario: Scenario,
    limits: RemotingLimits = LIMITS,
) -> None:
    async def within() -> None:
        server = RemotingServer(asyncio.get_running_loop(), "127.0.0.1", 0, echo, limits, tls=tls)
        await server.start()
        try:
            await scenario(server, f"127.0.0.1:{server.port}")
        finally:
            await server.stop()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(within())


async def echoed(address: str, security: ClientSecurity, body: bytes = b"hello") -> bytes:
    """The answer to one request on a connection of its own."""
    client = RemotingClient(asyncio.get_running_loop(), security=security)
    try:
        return (await client.invoke(address, 310, None, (body,), timeout=5)).body
    finally:
        await client.close()


def test_a_permissive_port_serves_both_kinds(
    new_loop: Callable[[], asyncio.AbstractEventLoop], files: TlsFiles
) -> None:
    async def scenario(_server: RemotingServer, address: str) -> None:
        large = bytes(range(256)) * 16_384
        for security in (NO_SECURITY, ClientSecurity(ca=files.ca)):
            assert await echoed(address, security) == b"hello"
            assert await echoed(address, security, large) == large

    run(new_loop, port_tls(files, plain=True), scenario)


def test_an_enforcing_port_serves_tls_alone(
    new_loop: Callable[[], asyncio.AbstractEventLoop], files: TlsFiles
) -> None:
    async def scenario(server: RemotingServer, address: str) -> None:
        assert await echoed(address, ClientSecurity(ca=files.ca)) == b"hello"
        with pytest.raises(CallError):
            await echoed(address, NO_SECURITY)
        assert server.connections == []

    run(new_loop, port_tls(files, plain=False), scenario)


def test_a_client_believes_the_authority_of_its_cluster_alone(
    new_loop: Callable[[], asyncio.AbstractEventLoop], files: TlsFiles, tmp_path: Path
) -> None:
    other = write_tls_files(tmp_path / "other", NODE, by="another", trusts="another")

    async def scenario(_server: RemotingServer, address: str) -> None:
        with pytest.raises(ConnectFailedError, match=r"(?i)certificate"):
            await echoed(address, ClientSecurity(ca=other.ca))

    run(new_loop, port_tls(files, plain=True), scenario)


def test_a_client_of_tls_12_is_served(
    new_loop: Callable[[], asyncio.AbstractEventLoop], files: TlsFiles
) -> None:
    async def scenario(_server: RemotingServer, address: str) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(files.ca)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        host, port = address.split(":")
        _, writer = await asyncio.open_connection(host, int(port), ssl=context)
        assert writer.get_extra_info("cipher")[1] in {"TLSv1.2", "TLSv1/SSLv3"}
        writer.close()

    run(new_loop, port_tls(files, plain=True), scenario)


def test_a_new_certificate_is_shown_without_a_restart(
    new_loop: Callable[[], asyncio.AbstractEventLoop], files: TlsFiles, tmp_path: Path
) -> None:
    async def scenario(_server: RemotingServer, address: str) -> None:
        old = ClientSecurity(ca=str(tmp_path / "old.pem"))
        Path(old.ca).write_bytes(Path(files.ca).read_bytes())
        standing = RemotingClient(asyncio.get_running_loop(), security=old)
        assert (await standing.invoke(address, 310, None, (b"a",))).body == b"a"
        write_tls_files(tmp_path, NODE, by="another", trusts="another")
        assert await echoed(address, ClientSecurity(ca=files.ca)) == b"hello"
        with pytest.raises(ConnectFailedError):
            await echoed(address, old)
        assert (await standing.invoke(address, 310, None, (b"b",))).body == b"b"
        await standing.close()

    run(new_loop, port_tls(files, plain=True), scenario)


def test_silent_connections_are_ended_and_keep_nobody_out(
    new_loop: Callable[[], asyncio.AbstractEventLoop], files: TlsFiles
) -> None:
    async def scenario(_server: RemotingServer, address: str) -> None:
        host, port = address.split(":")
        silent = [socket.create_connection((host, int(port))) for _ in range(8)]
        assert await echoed(address, ClientSecurity(ca=files.ca)) == b"hello"
        await asyncio.sleep(LIMITS.connect_seconds + 0.2)
        for connection in silent:
            connection.settimeout(5)
            assert connection.recv(1) == b""
            connection.close()

    run(new_loop, port_tls(files, plain=True), scenario)


def test_a_handshake_that_is_nonsense_ends_its_connection_alone(
    new_loop: Callable[[], asyncio.AbstractEventLoop], files: TlsFiles
) -> None:
    async def scenario(_server: RemotingServer, address: str) -> None:
        host, port = address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"\x16" + b"no TLS" * 100)
        await reader.read()
        writer.close()
        assert await echoed(address, ClientSecurity(ca=files.ca)) == b"hello"

    run(new_loop, port_tls(files, plain=True), scenario)


def test_a_permissive_client_asks_without_tls_whom_it_must_and_believes_no_other_authority(
    new_loop: Callable[[], asyncio.AbstractEventLoop], files: TlsFiles, tmp_path: Path
) -> None:
    other = write_tls_files(tmp_path / "other", NODE, by="another", trusts="another")

    async def scenario(_server: RemotingServer, address: str) -> None:
        plain = RemotingServer(asyncio.get_running_loop(), "127.0.0.1", 0, echo, LIMITS)
        await plain.start()
        plain_address = f"127.0.0.1:{plain.port}"
        assert await echoed(plain_address, ClientSecurity(ca=files.ca, plain_too=True)) == b"hello"
        assert await echoed(address, ClientSecurity(ca=files.ca, plain_too=True)) == b"hello"
        with pytest.raises(CallError):
            await echoed(plain_address, ClientSecurity(ca=files.ca))
        with pytest.raises(ConnectFailedError):
            await echoed(address, ClientSecurity(ca=other.ca, plain_too=True))
        await plain.stop()

    run(new_loop, port_tls(files, plain=True), scenario)
