"""Topics of other broker groups, as the NameServers tell of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest

from broker.errors import UnknownTopicError
from broker.grpc.routes import Routes
from broker.limits import GRPC
from broker.remoting.connection import Connection
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.remoting.protocol.frame import Frame
from broker.remoting.server import RemotingServer
from broker.security.credentials import NO_SECURITY
from tests.broker.nameserver.tool import TOPIC
from tests.support.virtual_network import NetworkedLoop

REMOTING, SERVES_GRPC = "10.0.0.9:10911", "10.0.0.9:10916"
DOCUMENTS: dict[int, object] = {
    RequestCode.GET_ROUTEINFO_BY_TOPIC: {
        "brokerDatas": [
            {"brokerName": "broker-b", "cluster": "c", "brokerAddrs": {"0": REMOTING}},
        ],
        "queueDatas": [TOPIC | {"brokerName": "broker-b"}],
    },
    RequestCode.GET_BROKER_CLUSTER_INFO: {"grpcAddrTable": {REMOTING: SERVES_GRPC}},
}
ANSWER_SECONDS = 0.1
PORTS = (9876, 9877)


class Nameserver:
    """It has the topic until that is deleted."""

    def __init__(self, loop: NetworkedLoop, port: int) -> None:
        self._loop = loop
        self.has_it = True
        self.silent = False
        self.asked = 0
        self.server = RemotingServer(loop, "10.0.0.1", port, self._take)

    def _take(self, connection: Connection, request: Frame) -> None:
        self.asked += 1
        if self.silent:
            return
        if request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC and not self.has_it:
            connection.respond(request, ResponseCode.TOPIC_NOT_EXIST, "no such topic")
            return
        body = orjson.dumps(DOCUMENTS[request.code])
        self._loop.call_later(ANSWER_SECONDS, lambda: connection.respond(request, body=(body,)))


class Asker:
    """A node of broker-a, which has no topics of its own."""

    def __init__(self, loop: NetworkedLoop) -> None:
        config = SimpleNamespace(
            node="n0",
            group="broker-a",
            namesrv=[f"10.0.0.1:{port}" for port in PORTS],
            members={"n0": SimpleNamespace(grpc=None)},
        )
        core = SimpleNamespace(configuration=SimpleNamespace(addresses={}))
        context = SimpleNamespace(
            loop=loop,
            config=config,
            node=SimpleNamespace(core=core),
            machine=SimpleNamespace(state=SimpleNamespace(topics={})),
            settings=SimpleNamespace(auto_create_topics=False),
        )
        self.routes = Routes(cast("Any", context), NO_SECURITY)
        self.nameservers = [Nameserver(loop, port) for port in PORTS]

    async def find(self) -> list[str]:
        """Where clients are told to go for the topic."""
        found = await self.routes.find("T")
        return [str(each) for route in found for each in route.endpoints]


@asynccontextmanager
async def asking(loop: NetworkedLoop) -> AsyncIterator[Asker]:
    asker = Asker(loop)
    for each in asker.nameservers:
        await each.server.start()
    yield asker
    await asker.routes.close()
    for each in asker.nameservers:
        await each.server.stop()


async def test_who_asks_while_another_is_answered_is_told_the_same(loop: NetworkedLoop) -> None:
    async with asking(loop) as asker:
        first = asyncio.ensure_future(asker.find())
        await asyncio.sleep(ANSWER_SECONDS / 2)
        assert await asker.find() == [SERVES_GRPC]
        assert await first == [SERVES_GRPC]


async def test_a_nameserver_that_does_not_answer_is_not_waited_for_again(
    loop: NetworkedLoop,
) -> None:
    loop.unreachable.add(PORTS[0])
    async with asking(loop) as asker:
        assert await asker.find() == [SERVES_GRPC]
        await asyncio.sleep(GRPC.route_seconds)
        began = loop.time()
        assert await asker.find() == [SERVES_GRPC]
        assert loop.time() - began == pytest.approx(2 * ANSWER_SECONDS)
        asked = asker.nameservers[1].asked
        assert await asker.find() == [SERVES_GRPC]
        assert asker.nameservers[1].asked == asked


async def test_while_no_nameserver_answers_what_was_told_last_stays(loop: NetworkedLoop) -> None:
    async with asking(loop) as asker:
        assert await asker.find() == [SERVES_GRPC]
        for each in asker.nameservers:
            await each.server.stop()
        await asyncio.sleep(GRPC.route_seconds)
        assert await asker.find() == [SERVES_GRPC]
        for each in asker.nameservers:
            each.has_it = False
            await each.server.start()
        await asyncio.sleep(GRPC.route_seconds)
        with pytest.raises(UnknownTopicError):
            await asker.find()


async def test_a_question_without_an_answer_takes_back_nothing_that_another_was_told(
    loop: NetworkedLoop,
) -> None:
    async with asking(loop) as asker:
        for each in asker.nameservers:
            each.silent = True
        unanswered = asyncio.ensure_future(asker.find())
        await asyncio.sleep(GRPC.nameserver_seconds + ANSWER_SECONDS)
        asker.nameservers[1].silent = False
        assert await asker.find() == [SERVES_GRPC]
        assert not unanswered.done()
        assert await unanswered == [SERVES_GRPC]
        assert await asker.find() == [SERVES_GRPC]
