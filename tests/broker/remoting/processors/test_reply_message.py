"""Requests and replies between clients."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from broker.remoting.client import RemotingClient
from broker.remoting.connection import Connection
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.remoting.protocol.errors import RequestError
from broker.remoting.protocol.frame import Frame
from broker.remoting.server import RemotingServer
from store.message.properties import decode_properties
from tests.broker.single_broker import (
    ADDRESS,
    NOW_MS,
    SingleBroker,
    messages,
    running_broker,
    send_ext,
)
from tests.support.virtual_network import NetworkedLoop

REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"
REPLY = "MSG_TYPE\x01reply\x02CORRELATION_ID\x0142\x02REPLY_TO_CLIENT\x01asker"


class Asker:
    """A producer with a connection of its own, that acknowledges replies with ``code``."""

    def __init__(self, broker: SingleBroker, code: int | None = ResponseCode.SUCCESS) -> None:
        self.code = code
        self.got: list[Frame] = []
        self.client = RemotingClient(broker.loop, {RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: self})

    def __call__(self, connection: Connection, frame: Frame) -> None:
        self.got.append(frame)
        if self.code is not None:
            connection.respond(frame, self.code, "as the test wants")

    async def connect(self) -> None:
        body = b'{"clientID":"asker","producerDataSet":[{"groupName":"askers"}]}'
        answer = await self.client.invoke(ADDRESS, RequestCode.HEART_BEAT, {}, (body,))
        assert answer.code == ResponseCode.SUCCESS


async def reply(broker: SingleBroker, properties: str = REPLY, body: bytes = b"yes") -> Frame:
    ext = send_ext(REPLY_TOPIC, -1, properties)
    return await broker.ask(RequestCode.SEND_REPLY_MESSAGE_V2, ext, body)


async def test_a_reply_is_passed_on_to_the_client_that_asked(broker: SingleBroker) -> None:
    asker = Asker(broker)
    await asker.connect()
    answer = await reply(broker)
    assert answer.code == ResponseCode.SUCCESS
    stored_nowhere = {"msgId": "0", "queueId": "0", "queueOffset": "0"}
    assert answer.ext.items() >= stored_nowhere.items()
    (got,) = asker.got
    assert (got.body, got.ext["topic"], got.ext["queueId"]) == (b"yes", REPLY_TOPIC, "0")
    assert got.ext["storeHost"] == ADDRESS
    assert decode_properties(str(got.ext["properties"]).encode()) == {
        "MSG_TYPE": "reply",
        "CORRELATION_ID": "42",
        "REPLY_TO_CLIENT": "asker",
        "PUSH_REPLY_TIME": str(NOW_MS),
    }
    await asker.client.close()


async def test_replies_with_long_names_are_taken_too(broker: SingleBroker) -> None:
    asker = Asker(broker)
    await asker.connect()
    ext = {
        "producerGroup": "repliers",
        "topic": REPLY_TOPIC,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "0",
        "sysFlag": "0",
        "bornTimestamp": "1",
        "flag": "7",
        "properties": REPLY,
    }
    answer = await broker.ask(RequestCode.SEND_REPLY_MESSAGE, ext, b"yes")
    assert answer.code == ResponseCode.SUCCESS
    assert asker.got[0].ext["flag"] == "7"
    await asker.client.close()


@pytest.mark.parametrize(
    ("properties", "remark"),
    [
        ("CORRELATION_ID\x0142\x02", "properties[REPLY_TO_CLIENT] is null"),
        ("REPLY_TO_CLIENT\x01nobody\x02", "channel of <nobody> not found"),
    ],
)
async def test_a_reply_to_nobody_is_refused(
    broker: SingleBroker, properties: str, remark: str
) -> None:
    answer = await reply(broker, properties)
    assert (answer.code, remark in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)


@pytest.mark.parametrize(
    ("code", "remark"), [(ResponseCode.SYSTEM_ERROR, "as the test wants"), (None, "in time")]
)
async def test_a_reply_that_the_asker_does_not_take_has_failed(
    broker: SingleBroker, code: int | None, remark: str
) -> None:
    asker = Asker(broker, code)
    await asker.connect()
    answer = await reply(broker)
    assert (answer.code, remark in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
    await asker.client.close()


async def test_an_asker_whose_connection_closed_is_not_found_any_more(broker: SingleBroker) -> None:
    asker = Asker(broker)
    await asker.connect()
    await asker.client.close()
    await asyncio.sleep(0.01)
    assert "not found" in ((await reply(broker)).remark or "")


@pytest.mark.parametrize("knows_asker", [True, False])
async def test_a_reply_goes_by_way_of_the_member_that_has_the_asker(
    broker: SingleBroker, monkeypatch: pytest.MonkeyPatch, knows_asker: bool
) -> None:
    asked: list[Frame] = []

    def peer(connection: Connection, request: Frame) -> None:
        asked.append(request)
        if not knows_asker:
            raise RequestError(ResponseCode.CONSUMER_NOT_ONLINE, "not here")
        connection.respond(request, ext={"answer": "0"})

    server = RemotingServer(broker.loop, "127.0.0.2", 2, peer)
    await server.start()
    monkeypatch.setattr(broker.broker.context.elsewhere, "_peers", lambda: ["127.0.0.2:2"])
    answer = await reply(broker)
    assert [(each.code, each.body) for each in asked] == [(RequestCode.PASS_TO_CLIENT, b"yes")]
    assert (asked[0].ext["client"], asked[0].ext["request"]) == ("asker", "326")
    if knows_asker:
        assert answer.code == ResponseCode.SUCCESS
    else:
        assert answer.remark == "push reply message fail, channel of <asker> not found."
    await server.stop()


async def test_a_reply_that_is_too_large_is_refused(broker: SingleBroker) -> None:
    answer = await reply(broker, body=b"x" * (64 * 1024 + 1))
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL


async def test_who_consumes_a_request_learns_where_to_reply(broker: SingleBroker) -> None:
    await broker.create_topic("orders")
    await broker.send("orders", 0, b"?", "CORRELATION_ID\x0142\x02REPLY_TO_CLIENT\x01asker\x02")
    (request,) = messages(await broker.pull("orders", 0, 0))
    assert request.property_map["CLUSTER"] == "DefaultCluster"
    announced = broker.broker.announcements.current().topics[REPLY_TOPIC]
    assert announced["writeQueueNums"] == 1


async def test_a_node_that_does_not_lead_passes_nothing_on(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    async with running_broker(loop, tmp_path, serving=False) as broker:
        assert (await reply(broker)).code == ResponseCode.SERVICE_NOT_AVAILABLE
