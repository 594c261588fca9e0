"""TLS on a remoting port, by real sockets, in both event loops that can run it."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

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


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    return write_tls_files(tmp_path, NODE)


@asynccontextmanager
async def serving(
    loop: asyncio.AbstractEventLoop, tls: PortTls
) -> AsyncIterator[tuple[RemotingServer, str]]:
    """A server with this port, and its address."""
    server = RemotingServer(loop, "127.0.0.1", 0, echo, LIMITS, tls=tls)
    await server.start()
    yield server, f"127.0.0.1:{server.port}"
    await server.stop()


@pytest.fixture
async def permissive(each_loop: asyncio.AbstractEventLoop, files: TlsFiles) -> AsyncIterator[str]:
    """The address of a port that also serves without TLS."""
    async with serving(each_loop, port_tls(files, plain=True)) as (_, address):
        yield address


async def echoed(address: str, security: ClientSecurity, body: bytes = b"hello") -> bytes:
    """The answer to one request on a connection of its own."""
    client = RemotingClient(asyncio.get_running_loop(), security=security)
    try:
        return (await client.invoke(address, 310, None, (body,), timeout=5)).body
    finally:
        await client.close()


async def test_a_permissive_port_serves_both_kinds(permissive: str, files: TlsFiles) -> None:
    large = bytes(range(256)) * 16_384
    for security in (NO_SECURITY, ClientSecurity(ca=files.ca)):
        assert await echoed(permissive, security) == b"hello"
        assert await echoed(permissive, security, large) == large


async def test_an_enforcing_port_serves_tls_alone(
    each_loop: asyncio.AbstractEventLoop, files: TlsFiles
) -> None:
    async with serving(each_loop, port_tls(files, plain=False)) as (server, address):
        assert await echoed(address, ClientSecurity(ca=files.ca)) == b"hello"
        with pytest.raises(CallError):
            await echoed(address, NO_SECURITY)
        assert server.connections == []


async def test_a_client_believes_the_authority_of_its_cluster_alone(
    permissive: str, tmp_path: Path
) -> None:
    other = write_tls_files(tmp_path / "other", NODE, by="another", trusts="another")
    with pytest.raises(ConnectFailedError, match=r"(?i)certificate"):
        await echoed(permissive, ClientSecurity(ca=other.ca))


async def test_a_client_of_tls_12_is_served(permissive: str, files: TlsFiles) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(files.ca)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    host, port = permissive.split(":")
    _, writer = await asyncio.open_connection(host, int(port), ssl=context)
    assert writer.get_extra_info("cipher")[1] in {"TLSv1.2", "TLSv1/SSLv3"}
    writer.close()


async def test_a_new_certificate_is_shown_without_a_restart(
    permissive: str, files: TlsFiles, tmp_path: Path
) -> None:
    old = ClientSecurity(ca=str(tmp_path / "old.pem"))
    Path(old.ca).write_bytes(Path(files.ca).read_bytes())
    standing = RemotingClient(asyncio.get_running_loop(), security=old)
    assert (await standing.invoke(permissive, 310, None, (b"a",))).body == b"a"
    write_tls_files(tmp_path, NODE, by="another", trusts="another")
    assert await echoed(permissive, ClientSecurity(ca=files.ca)) == b"hello"
    with pytest.raises(ConnectFailedError):
        await echoed(permissive, old)
    assert (await standing.invoke(permissive, 310, None, (b"b",))).body == b"b"
    await standing.close()


async def test_silent_connections_are_ended_and_keep_nobody_out(
    permissive: str, files: TlsFiles
) -> None:
    host, port = permissive.split(":")
    silent = [socket.create_connection((host, int(port))) for _ in range(8)]
    assert await echoed(permissive, ClientSecurity(ca=files.ca)) == b"hello"
    await asyncio.sleep(LIMITS.connect_seconds + 0.2)
    for connection in silent:
        connection.settimeout(5)
        assert connection.recv(1) == b""
        connection.close()


async def test_a_handshake_that_is_nonsense_ends_its_connection_alone(
    permissive: str, files: TlsFiles
) -> None:
    host, port = permissive.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"\x16" + b"no TLS" * 100)
    await reader.read()
    writer.close()
    assert await echoed(permissive, ClientSecurity(ca=files.ca)) == b"hello"


async def test_a_permissive_client_asks_without_tls_whom_it_must_and_believes_no_other_authority(
    permissive: str, files: TlsFiles, tmp_path: Path
) -> None:
    other = write_tls_files(tmp_path / "other", NODE, by="another", trusts="another")
    plain = RemotingServer(asyncio.get_running_loop(), "127.0.0.1", 0, echo, LIMITS)
    await plain.start()
    plain_address = f"127.0.0.1:{plain.port}"
    assert await echoed(plain_address, ClientSecurity(ca=files.ca, plain_too=True)) == b"hello"
    assert await echoed(permissive, ClientSecurity(ca=files.ca, plain_too=True)) == b"hello"
    with pytest.raises(CallError):
        await echoed(plain_address, ClientSecurity(ca=files.ca))
    with pytest.raises(ConnectFailedError):
        await echoed(permissive, ClientSecurity(ca=other.ca, plain_too=True))
    await plain.stop()
