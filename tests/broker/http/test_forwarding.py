"""A message that only the leader can take goes on to it, over HTTP in memory."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import ClientRequest, hdrs, web
from aiohttp.client_proto import ResponseHandler
from aiohttp.test_utils import make_mocked_request

from broker.config.security_config import DISABLED, ENFORCING, PERMISSIVE, SecurityConfig
from broker.errors import NoAnswerError
from broker.http.access import ACCOUNT
from broker.http.cluster import ClusterHandler
from broker.http.forwarding import HttpForwarder
from broker.limits import FORWARDING
from dledger.errors import NotLeaderError
from dledger.node.state_machine import Leadership
from dledger.raft.raft_state import Role
from dledger.wire.peer_identity import PeerIdentity
from tests.broker.single_broker import SingleBroker, running_broker
from tests.support.certificates import write_tls_files
from tests.support.virtual_network import MemoryTransport, NetworkedLoop


class LeaderPort:
    """Answers every request the same, some time after it came."""

    def __init__(self) -> None:
        self.status = "200 OK"
        self.headers = ""
        self.document: dict[str, str] = {}
        self.seconds = 0.0
        self.refuses_tls: OSError | None = None
        """What ends a handshake; None: it speaks TLS."""
        self.heads: list[bytes] = []
        """What it was asked."""

    def answer(self, transport: MemoryTransport) -> None:
        body = orjson.dumps(self.document)
        head = f"HTTP/1.1 {self.status}\r\n{self.headers}Content-Length: {len(body)}\r\n\r\n"
        transport.write(head.encode() + body)


class LeaderConnection(asyncio.Protocol):
    """One of those that the leader has accepted."""

    def __init__(self, loop: NetworkedLoop, port: LeaderPort) -> None:
        self._loop = loop
        self._port = port

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, MemoryTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if data.startswith((b"POST ", b"GET ")):
            self._port.heads.append(data.partition(b"\r\n\r\n")[0])
            self._loop.call_later(self._port.seconds, self._port.answer, self._transport)


class Follower:
    """The forwarder of a node that does not lead, and the leader's port."""

    def __init__(self, broker: SingleBroker, leader: LeaderPort) -> None:
        self.broker = broker
        self.leader = leader
        self.address: str | None = "127.0.0.1:8080"
        """Of the leader."""
        self.forwarder = HttpForwarder(broker.broker.context, lambda: self.address)

    async def post(self, account: str | None = None) -> web.Response:
        """``account``: as access control here has it; "" is allowed by its address."""
        headers = {} if account is None else {hdrs.AUTHORIZATION: "Basic keys"}
        request = make_mocked_request("POST", "/topics/orders/messages", headers)
        if account is not None:
            request[ACCOUNT] = account
        return await self.forwarder.serve_or_forward(request, b"{}", self._here)

    async def _here(self) -> web.Response:
        raise NotLeaderError("n1")

    async def seconds_until_refused(self) -> float:
        began = self.broker.loop.time()
        with pytest.raises(NotLeaderError):
            await self.post()
        return self.broker.loop.time() - began

    def hear(self, leader: str | None) -> None:
        announcer = self.broker.broker.context.node.announcer
        announcer.leadership = Leadership(Role.FOLLOWER, 7, leader, serving=False)
        self.forwarder.leadership_changed()


@asynccontextmanager
async def following(
    loop: NetworkedLoop, data: Path, monkeypatch: pytest.MonkeyPatch, tls: str = DISABLED
) -> AsyncIterator[Follower]:
    """``tls``: the setting of the follower."""
    leader = LeaderPort()

    class Connector(aiohttp.TCPConnector):
        async def _create_connection(self, req: ClientRequest, *_: Any) -> ResponseHandler:
            refusal = leader.refuses_tls
            if req.is_ssl() and isinstance(refusal, ssl.SSLCertVerificationError):
                raise aiohttp.ClientConnectorCertificateError(req.connection_key, refusal)
            if req.is_ssl() and isinstance(refusal, ssl.SSLError):
                raise aiohttp.ClientConnectorSSLError(req.connection_key, refusal)
            if req.is_ssl() and refusal is not None:
                raise aiohttp.ClientConnectorError(req.connection_key, refusal)
            protocol = self._factory()
            loop.join(protocol, LeaderConnection(loop, leader), 8080)
            return protocol

    monkeypatch.setattr(aiohttp, "TCPConnector", Connector)
    write_tls_files(data / "security", PeerIdentity("DefaultCluster", "broker-a", "n0"))
    security = SecurityConfig(directory=str(data / "security"), tls=tls)
    async with running_broker(loop, data / "data", serving=False, security=security) as broker:
        follower = Follower(broker, leader)
        yield follower
        await follower.forwarder.close(web.Application())


@pytest.fixture
async def follower(
    loop: NetworkedLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Follower]:
    async with following(loop, tmp_path, monkeypatch) as follower:
        yield follower


async def test_requests_are_sent_at_once_however_many_wait_for_answers(follower: Follower) -> None:
    """Who waited here meanwhile would be told that its message may be stored."""
    follower.leader.seconds = 0.9 * FORWARDING.answer_seconds
    count = 128
    answers = await asyncio.gather(*(follower.post() for _ in range(count)))
    assert [answer.status for answer in answers] == [200] * count


async def test_who_comes_when_no_leader_came_in_time_is_refused_at_once(
    follower: Follower,
) -> None:
    follower.address = None
    assert await follower.seconds_until_refused() == pytest.approx(FORWARDING.wait_seconds)
    assert await follower.seconds_until_refused() == 0
    follower.hear(None)
    assert await follower.seconds_until_refused() == 0
    follower.hear("n1")
    assert await follower.seconds_until_refused() == pytest.approx(FORWARDING.wait_seconds)


@pytest.mark.parametrize(
    ("status", "account"),
    [("401 Unauthorized", ""), ("401 Unauthorized", "writer-123"), ("403 Forbidden", "")],
)
async def test_whom_the_leader_does_not_know_is_told_who_leads(
    follower: Follower, status: str, account: str
) -> None:
    """It is in a white list, and the leader sees the follower's address."""
    follower.leader.status = status
    follower.leader.document = {"error": "AclException: who asks?"}
    began = follower.broker.loop.time()
    with pytest.raises(NotLeaderError):
        await follower.post(account)
    assert follower.broker.loop.time() - began < FORWARDING.wait_seconds


@pytest.mark.parametrize("account", [None, "writer-123"])
async def test_what_the_leader_forbids_to_somebody_known_is_final(
    follower: Follower, account: str | None
) -> None:
    follower.leader.status = "403 Forbidden"
    follower.leader.document = {"error": "the topic is not writable"}
    assert (await follower.post(account)).status == 403


async def test_when_to_ask_again_is_what_the_leader_says(follower: Follower) -> None:
    follower.leader.status = "429 Too Many Requests"
    follower.leader.headers = "Retry-After: 3\r\n"
    follower.leader.document = {"error": "beyond a quota"}
    refused = await follower.post()
    assert (refused.status, refused.headers["Retry-After"]) == (429, "3")


async def test_a_longer_answer_than_any_to_a_message_is_not_read(follower: Follower) -> None:
    """Whatever listens there: it may be stored."""
    follower.leader.document = {"error": "x" * (FORWARDING.http_answer_max - 12)}
    assert (await follower.post()).status == 200
    follower.leader.document["error"] += "x"
    with pytest.raises(NoAnswerError):
        await follower.post()


NO_TLS = ssl.SSLError(1, "wrong version number")


@pytest.mark.parametrize("refusal", [NO_TLS, ConnectionResetError()])
async def test_a_leader_that_has_no_tls_yet_gets_the_message_and_no_keys(
    loop: NetworkedLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: OSError
) -> None:
    """While TLS is switched on, node by node."""
    async with following(loop, tmp_path, monkeypatch, PERMISSIVE) as follower:
        for plain in (True, False):
            follower.leader.refuses_tls = refusal if plain else None
            assert (await follower.post("writer-123")).status == 200
            (head,) = follower.leader.heads
            assert (b"Authorization" in head) is not plain
            follower.leader.heads.clear()


@pytest.mark.parametrize(
    ("tls", "refusal"),
    [(ENFORCING, NO_TLS), (PERMISSIVE, ssl.SSLCertVerificationError("another authority"))],
)
async def test_a_leader_that_is_not_believed_gets_nothing(
    loop: NetworkedLoop,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tls: str,
    refusal: OSError,
) -> None:
    async with following(loop, tmp_path, monkeypatch, tls) as follower:
        follower.leader.refuses_tls = refusal
        assert await follower.seconds_until_refused() == pytest.approx(FORWARDING.wait_seconds)
        assert not follower.leader.heads


@pytest.mark.parametrize("tls", [PERMISSIVE, ENFORCING])
async def test_a_node_that_has_no_tls_yet_is_not_shown_as_down(
    loop: NetworkedLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tls: str
) -> None:
    async with following(loop, tmp_path, monkeypatch, tls) as follower:
        follower.leader.refuses_tls, follower.leader.document = NO_TLS, {"node": "n1"}
        cluster = ClusterHandler(follower.broker.broker.context)
        async with cluster.view("Basic keys") as view:
            if tls == ENFORCING:
                with pytest.raises(OSError, match="wrong version number"):
                    await view._ask("10.0.0.9:8080", "/status")
                return
            assert await view._ask("10.0.0.9:8080", "/status") == {"node": "n1"}
        (head,) = follower.leader.heads
        assert b"Authorization" not in head
