"""A message that only the leader can take goes on to it, over HTTP in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import web
from aiohttp.client_proto import ResponseHandler
from aiohttp.test_utils import make_mocked_request

from broker.http.access import ACCOUNT
from broker.http.errors import OUTCOME, UNKNOWN
from broker.http.forwarding import HttpForwarder
from broker.limits import FORWARDING
from dledger.errors import NotLeaderError
from dledger.node.state_machine import Leadership
from dledger.raft.raft_state import Role
from tests.broker.single_broker import SingleBroker, running_broker
from tests.support.virtual_network import MemoryTransport, NetworkedLoop


class LeaderPort:
    """Answers every request the same, some time after it came."""

    def __init__(self) -> None:
        self.status = "200 OK"
        self.headers = ""
        self.document: dict[str, str] = {}
        self.seconds = 0.0

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
        if data.startswith(b"POST "):
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
        request = make_mocked_request("POST", "/topics/orders/messages")
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


@pytest.fixture
async def follower(
    loop: NetworkedLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Follower]:
    leader = LeaderPort()

    class Connector(aiohttp.TCPConnector):
        async def _create_connection(self, *_: Any) -> ResponseHandler:
            protocol = self._factory()
            loop.join(protocol, LeaderConnection(loop, leader), 8080)
            return protocol

    monkeypatch.setattr(aiohttp, "TCPConnector", Connector)
    async with running_broker(loop, tmp_path, serving=False) as broker:
        follower = Follower(broker, leader)
        yield follower
        await follower.forwarder.close(web.Application())


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
    refused = await follower.post()
    assert refused.status == 503
    assert isinstance(refused.body, bytes)
    assert orjson.loads(refused.body)[OUTCOME] == UNKNOWN
