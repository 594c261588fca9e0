"""Peers over TLS on loopback: who is let in, who is not, and new certificates."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
import uvloop

from dledger.config import PeerLimits
from dledger.raft.messages import AppendRequest, Heartbeat
from dledger.wire.greeting import Greeting, pack_greeting
from dledger.wire.peer_identity import Admission, PeerIdentity, PeerSecurity, identity_of
from dledger.wire.peer_link import PATH
from dledger.wire.revoked_certificates import FILE_BYTES_MAX, RevokedCertificates, read_serials
from dledger.wire.tls_contexts import TlsContexts, TlsFiles
from dledger.wire.websocket_transport import LOOKS, WebSocketTransport
from store.log.entry import EntryKind, build_entry
from tests.dledger.wire.test_websocket_transport import Recorder, free_ports
from tests.support.certificates import write_tls_files

QUIET_SECONDS = 0.15
"""Some dials, and some looks at the list of revoked certificates."""
SHORT_SECONDS = 0.2
"""For a greeting that never comes."""
OURS = "ours"


def named(node: str, cluster: str = "c", group: str = "g") -> PeerIdentity:
    return PeerIdentity(cluster, group, node)


@dataclass
class Peers:
    """Nodes of one group, and their ports."""

    directory: Path
    ports: dict[str, int]

    @property
    def revoked(self) -> Path:
        return self.directory / "revoked"

    def secured(self, files: TlsFiles, node: str, *, required: bool) -> PeerSecurity:
        revoked = RevokedCertificates(str(self.revoked))
        return PeerSecurity(TlsContexts(files), Admission(named(node), required, revoked))

    def transport(
        self,
        node: str,
        security: PeerSecurity | None,
        *,
        looks_each: float = 15.0,
        greeting_seconds: float = 1.0,
    ) -> WebSocketTransport:
        peers = {peer: f"127.0.0.1:{port}" for peer, port in self.ports.items() if peer != node}
        return WebSocketTransport(
            group="g",
            node=node,
            host="127.0.0.1",
            port=self.ports[node],
            peers=peers,
            security=security,
            limits=PeerLimits(
                greeting_seconds=greeting_seconds, message_seconds=LOOKS * looks_each
            ),
        )

    def security(
        self,
        node: str,
        mode: str,
        *,
        certified: PeerIdentity | None = None,
        by: str = OURS,
        trusts: str = OURS,
    ) -> PeerSecurity | None:
        if mode == "off":
            return None
        files = write_tls_files(
            self.directory / node, certified or named(node), by=by, trusts=trusts
        )
        return self.secured(files, node, required=mode == "enforcing")


@pytest.fixture
def peers(tmp_path: Path) -> Peers:
    return Peers(tmp_path, dict(zip(("n0", "n1"), free_ports(2), strict=True)))


@asynccontextmanager
async def running(*transports: WebSocketTransport) -> AsyncIterator[list[Recorder]]:
    recorders = [Recorder() for _ in transports]
    try:
        for transport, recorder in zip(transports, recorders, strict=True):
            await transport.start(recorder)
        yield recorders
    finally:
        for transport in transports:
            await transport.stop()


async def logged(caplog: pytest.LogCaptureFixture, text: str) -> None:
    """Waits until that is in the log."""
    async with asyncio.timeout(5):
        while text not in caplog.text:  # noqa: ASYNC110 - a line of the log sets no event
            await asyncio.sleep(0.01)


LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


def run_on(loop: str, scenario: Coroutine[None, None, None]) -> None:
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(scenario)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("enforcing", "enforcing"),
        ("enforcing", "permissive"),
        ("permissive", "permissive"),
        ("permissive", "off"),
    ],
)
def test_peers_find_each_other_and_carry_messages(
    peers: Peers, one: str, other: str, loop: str
) -> None:
    async def scenario() -> None:
        a = peers.transport("n0", peers.security("n0", one))
        b = peers.transport("n1", peers.security("n1", other))
        async with running(a, b) as (heard_a, heard_b):
            assert await heard_a.next() == ("connected", "n1", None)
            assert await heard_b.next() == ("connected", "n0", None)
            entry = build_entry(EntryKind.DATA, 4, 2, 480, 7, [os.urandom(3_000_000)])
            append = AppendRequest(2, 3, 1, 3, (entry,))
            for message in (Heartbeat(2, 1), append, append, Heartbeat(2, 4)):
                a.send("n1", message)
                assert await heard_b.next() == ("message", "n0", message)
                b.send("n0", message)
                assert await heard_a.next() == ("message", "n1", message)
            plain = other == "off"
            for link, peer in ((a._links["n1"], "n1"), (b._links["n0"], "n0")):
                for connection in (link.heard, link.socket):
                    assert identity_of(connection) == (None if plain else named(peer))

    run_on(loop, scenario())


REFUSED: dict[str, dict[str, object]] = {
    "no certificate": {"mode": "off"},
    "a certificate of another authority": {"by": "theirs"},
    "a node that trusts another authority": {"by": "theirs", "trusts": "theirs"},
    "a certificate of another cluster": {"certified": named("n1", cluster="d")},
    "a certificate of another group": {"certified": named("n1", group="h")},
    "a certificate of another node": {"certified": named("n2")},
    "a certificate of a NameServer": {"certified": PeerIdentity("c", "", "n1")},
}


def unexpected(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Records with a traceback. uvloop may log a handshake that the other end breaks off."""
    return [
        each
        for each in caplog.records
        if each.exc_info
        and not (each.name == "asyncio" and isinstance(each.exc_info[1], ConnectionError))
    ]


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("stranger", REFUSED)
def test_an_enforcing_node_refuses(
    peers: Peers, stranger: str, loop: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        a = peers.transport("n0", peers.security("n0", "enforcing"))
        given: dict[str, object] = {"mode": "permissive", **REFUSED[stranger]}
        b = peers.transport("n1", peers.security("n1", **given))  # type: ignore[arg-type]  # fields by name
        async with running(a, b) as (heard_a, heard_b):
            await logged(caplog, "refusing a peer at 127.0.0.1: ")
            a.send("n1", Heartbeat(9, 9))
            b.send("n0", Heartbeat(9, 9))
            await asyncio.sleep(QUIET_SECONDS)
            assert heard_a.events.empty()
            assert heard_b.events.empty()

    with caplog.at_level(logging.ERROR):
        run_on(loop, scenario())
    assert unexpected(caplog) == []


def serial_of(path: str) -> str:
    decoded = ssl._ssl._test_decode_cert(path)  # type: ignore[attr-defined]  # the reader of ssl
    return str(decoded["serialNumber"])


@pytest.mark.parametrize("dials", ["n0", "n1"])
async def test_a_certificate_that_is_revoked_is_refused_and_a_new_one_is_not(
    peers: Peers, dials: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a restart of who refuses. Either side may be the one that dials first."""
    a = peers.transport("n0", peers.security("n0", "enforcing"))
    b = peers.transport("n1", peers.security("n1", "enforcing"))
    first, second = (a, b) if dials == "n0" else (b, a)
    peers.revoked.write_text(f"# lost\n{serial_of(str(peers.directory / 'n1/node.pem'))}  # n1\n")
    async with running(first, second) as heard:
        await logged(caplog, "is revoked")
        await asyncio.sleep(QUIET_SECONDS)
        assert all(each.events.empty() for each in heard)
    renewed = write_tls_files(peers.directory / "n1", named("n1"), days=8)
    a = peers.transport("n0", peers.security("n0", "enforcing"))
    b = peers.transport("n1", peers.secured(renewed, "n1", required=True))
    async with running(a, b) as (heard_a, _heard_b):
        assert await heard_a.next() == ("connected", "n1", None)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_connection_that_stands_ends_when_its_certificate_is_revoked(
    peers: Peers, loop: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a restart; one side that looks at the list is enough."""

    async def scenario() -> None:
        a = peers.transport("n0", peers.security("n0", "enforcing"), looks_each=0.05)
        b = peers.transport("n1", peers.security("n1", "enforcing"))
        async with running(a, b) as (heard_a, heard_b):
            assert await heard_a.next() == ("connected", "n1", None)
            assert await heard_b.next() == ("connected", "n0", None)
            peers.revoked.write_text("0A  # of somebody else\n")
            await asyncio.sleep(QUIET_SECONDS)
            assert heard_a.events.empty()
            peers.revoked.write_text(f"{serial_of(str(peers.directory / 'n1/node.pem'))}\n")
            assert await heard_a.next() == ("lost", "n1", None)
            assert await heard_b.next() == ("lost", "n0", None)
            await asyncio.sleep(QUIET_SECONDS)
            assert heard_a.events.empty()  # nor does it come back
            a.send("n1", Heartbeat(9, 9))
            await asyncio.sleep(QUIET_SECONDS)
            assert heard_b.events.empty()

    with caplog.at_level(logging.ERROR):
        run_on(loop, scenario())
    assert "dropping the link to n1: the certificate" in caplog.text
    assert unexpected(caplog) == []


def test_a_list_that_cannot_be_read_leaves_what_was_read_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "revoked"
    revoked = RevokedCertificates(str(path))
    assert "0A" not in revoked
    path.write_text("0a # n3\n\n# nobody\n")
    assert "0A" in revoked
    path.write_text("0a\nnonsense\n")
    assert "0A" in revoked
    assert "line 2 is no serial number" in caplog.text
    path.write_text("0b\n" + "#" * FILE_BYTES_MAX)
    assert "0A" in revoked
    assert "0B" not in revoked  # nor is a part of it believed
    caplog.clear()
    path.unlink()
    assert "0A" in revoked  # by a deployment that has lost the file
    assert f"{path}: No such file or directory; what was read before stays in use" in caplog.text
    path.write_text("")
    assert "0A" not in revoked
    path.unlink()
    assert "0A" not in revoked
    with pytest.raises(ValueError, match="line 1"):
        read_serials("x")


def test_a_list_that_is_gone_is_told_once_until_it_is_there_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each link asks every few seconds."""
    path = tmp_path / "revoked"
    revoked = RevokedCertificates(str(path))
    path.write_text("0a\n")
    assert "0A" in revoked
    for times in (1, 2):
        path.rename(tmp_path / "away")
        for _ in range(3):
            assert "0A" in revoked
        assert caplog.text.count("No such file or directory") == times
        (tmp_path / "away").rename(path)
        assert "0A" in revoked


async def raw_dialogue(port: int, said: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(said)
        async with asyncio.timeout(5):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def test_who_does_not_speak_tls_hears_nothing(peers: Peers) -> None:
    a = peers.transport("n0", peers.security("n0", "enforcing"), greeting_seconds=SHORT_SECONDS)
    async with running(a):
        assert await raw_dialogue(peers.ports["n0"], b"GET /dledger HTTP/1.1\r\n\r\n") == b""
        assert await raw_dialogue(peers.ports["n0"], b"\x16") == b""


async def test_a_name_in_the_greeting_that_is_not_the_certificates_is_refused(
    peers: Peers, caplog: pytest.LogCaptureFixture
) -> None:
    """What an attacker does who has the files of one node."""
    a = peers.transport("n0", peers.security("n0", "enforcing"))
    files = write_tls_files(peers.directory / "stolen", named("n7"))
    context = TlsContexts(files).client_context()
    async with running(a) as (heard,), aiohttp.ClientSession() as session:
        url = f"https://127.0.0.1:{peers.ports['n0']}{PATH}"
        for name in ("n1", "n2"):
            async with session.ws_connect(url, ssl=context) as connection:
                await connection.send_bytes(pack_greeting(Greeting("g", name, "127.0.0.1:9")))
                message = await connection.receive(timeout=5)
                assert message.type is aiohttp.WSMsgType.CLOSE
                assert "its certificate is of dledger://c/g/n7" in str(message.extra)
        assert heard.events.empty()


async def test_a_new_certificate_is_used_without_a_restart(peers: Peers) -> None:
    security = peers.security("n0", "enforcing")
    assert security is not None
    a = peers.transport("n0", security)

    async def serial() -> str:
        context = TlsContexts(write_tls_files(peers.directory / "n1", named("n1"))).client_context()
        _, writer = await asyncio.open_connection("127.0.0.1", peers.ports["n0"], ssl=context)
        found = writer.get_extra_info("peercert")["notAfter"]
        writer.close()
        return str(found)

    async with running(a):
        before = await serial()
        write_tls_files(peers.directory / "n0", named("n0"), days=99)
        after = await serial()
        assert before != after
        (peers.directory / "n0" / "node.pem").write_text("half a certific")
        assert await serial() == after
        write_tls_files(peers.directory / "n0", named("n0"))
        assert await serial() == before


def test_an_expired_certificate_is_refused(peers: Peers) -> None:
    async def scenario() -> None:
        files = write_tls_files(peers.directory / "n1", named("n1"), days=0)
        a = peers.transport("n0", peers.security("n0", "enforcing"))
        b = peers.transport("n1", peers.secured(files, "n1", required=True))
        async with running(a, b) as (heard, _):
            await asyncio.sleep(QUIET_SECONDS)
            assert heard.events.empty()

    run_on("uvloop", scenario())


async def test_a_handshake_that_does_not_end_is_ended(peers: Peers) -> None:
    a = peers.transport("n0", peers.security("n0", "enforcing"), greeting_seconds=SHORT_SECONDS)
    async with running(a):
        hello = ssl.MemoryBIO()
        client = ssl.create_default_context().wrap_bio(
            ssl.MemoryBIO(), hello, server_hostname="localhost"
        )
        with pytest.raises(ssl.SSLWantReadError):
            client.do_handshake()
        assert len(await raw_dialogue(peers.ports["n0"], hello.read())) > 100  # its own part of it
        assert not [task for task in asyncio.all_tasks() if "_connect" in repr(task)]


async def test_stopping_leaves_no_connection_behind_that_has_said_nothing(peers: Peers) -> None:
    a = peers.transport("n0", peers.security("n0", "enforcing"))
    with socket.socket() as silent:
        async with running(a):
            silent.connect(("127.0.0.1", peers.ports["n0"]))
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.05)
        silent.settimeout(1)
        with suppress(ConnectionResetError):
            assert silent.recv(1) == b""
