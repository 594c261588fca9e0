"""What tools ask of a consumer by way of its broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.remoting.client import RemotingClient
from broker.remoting.connection import Connection
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.remoting.protocol.frame import Frame
from tests.broker.single_broker import ADDRESS, SingleBroker, messages, running_broker
from tests.support.virtual_network import NetworkedLoop

ONE = {"consumerGroup": "readers", "clientId": "one"}
TABLE = b'{"brokerName":"broker-a","queueId":0,"topic":"orders"}:7'


class Member:
    """A consumer that answers whatever it is asked with a body, or not at all."""

    def __init__(self, broker: SingleBroker, name: str, answer: bytes | None = b"{}") -> None:
        self.name = name
        self.answer = answer
        self.asked: list[Frame] = []
        codes = (
            RequestCode.GET_CONSUMER_RUNNING_INFO,
            RequestCode.CONSUME_MESSAGE_DIRECTLY,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
        )
        self.client = RemotingClient(broker.loop, dict.fromkeys(codes, self))

    def __call__(self, connection: Connection, frame: Frame) -> None:
        self.asked.append(frame)
        if self.answer is not None:
            connection.respond(frame, body=(self.answer,))

    async def join(self) -> None:
        body = b'{"clientID":"%b","consumerDataSet":[{"groupName":"readers"}]}'
        answer = await self.client.invoke(
            ADDRESS, RequestCode.HEART_BEAT, {}, (body % self.name.encode(),)
        )
        assert answer.code == ResponseCode.SUCCESS


async def test_a_consumer_tells_how_it_runs(broker: SingleBroker) -> None:
    one, two = Member(broker, "one", b'{"properties":{}}'), Member(broker, "two")
    for member in (one, two):
        await member.join()
    asked = ONE | {"jstackEnable": False}
    answer = await broker.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, asked)
    assert (answer.code, answer.body) == (ResponseCode.SUCCESS, b'{"properties":{}}')
    assert one.asked[0].ext == ONE | {"jstackEnable": "false"}
    assert not two.asked
    for member in (one, two):
        await member.client.close()


async def test_a_consumer_is_given_one_message_to_consume(broker: SingleBroker) -> None:
    await broker.create_topic("orders")
    sent = await broker.send("orders", 0, b"again")
    one = Member(broker, "one", b'{"consumeResult":"CR_SUCCESS"}')
    await one.join()
    asked = ONE | {"msgId": str(sent.ext["msgId"])}
    answer = await broker.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, asked)
    assert answer.body == b'{"consumeResult":"CR_SUCCESS"}'
    assert [record.body for record in messages(one.asked[0])] == [b"again"]
    assert one.asked[0].ext["brokerName"] == "broker-a"
    await one.client.close()


async def test_what_cannot_be_passed_on_is_refused_before_the_message_is_read(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    asked = dict[str, object](ONE)

    async with running_broker(loop, tmp_path) as broker:
        await broker.create_topic("orders")
        sent = await broker.send("orders", 0, b"again")
        asked.update({"msgId": str(sent.ext["msgId"]), "odd": {"no": "text"}})
    async with running_broker(loop, tmp_path) as broker:
        one = Member(broker, "one")
        await one.join()
        answer = await broker.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, asked, seconds=3)
        assert answer.remark == "field odd is not a string: {'no': 'text'}"
        assert not one.asked
        await one.client.close()


async def test_the_members_tell_where_they_are(broker: SingleBroker) -> None:
    one = Member(broker, "one", b'{"messageQueueTable":{%b}}' % TABLE)
    two = Member(broker, "two", b"what?")
    for member in (one, two):
        await member.join()
    asked = {"topic": "orders", "group": "readers"}
    answer = await broker.ask(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, asked)
    assert answer.body == b'{"consumerTable":{"one":{%b}}}' % TABLE
    assert one.asked[0].ext == asked
    answer = await broker.ask(
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, asked | {"clientAddr": "two"}
    )
    assert answer.body == b'{"consumerTable":{}}'
    assert len(one.asked) == 1
    for member in (one, two):
        await member.client.close()


async def test_a_consumer_that_does_not_answer_is_given_up(broker: SingleBroker) -> None:
    one = Member(broker, "one", None)
    await one.join()
    answer = await broker.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, ONE)
    assert answer.code == ResponseCode.CONSUME_MSG_TIMEOUT
    await one.client.close()


@pytest.mark.parametrize(
    ("code", "ext", "remark"),
    [
        (RequestCode.GET_CONSUMER_RUNNING_INFO, ONE, "<readers> <one> not online"),
        (RequestCode.CONSUME_MESSAGE_DIRECTLY, ONE | {"msgId": "x"}, "no id of a message: 'x'"),
        (
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
            {"topic": "orders", "group": "readers"},
            "No Any Consumer online in the consumer group: [readers]",
        ),
    ],
)
async def test_what_nobody_can_be_asked_is_refused(
    broker: SingleBroker, code: int, ext: dict[str, str], remark: str
) -> None:
    answer = await broker.ask(code, ext)
    assert (answer.code, remark in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)


async def test_a_consumer_that_is_away_is_given_no_message(broker: SingleBroker) -> None:
    await broker.create_topic("orders")
    sent = await broker.send("orders", 0, b"again")
    asked = ONE | {"msgId": str(sent.ext["msgId"])}
    answer = await broker.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, asked)
    assert (answer.code, answer.remark) == (1, "The Consumer <readers> <one> not online")


async def test_a_message_that_is_not_there_cannot_be_consumed(broker: SingleBroker) -> None:
    one = Member(broker, "one")
    await one.join()
    asked = ONE | {"msgId": "7F00000100002A9F" + "0" * 12 + "FFFF"}
    answer = await broker.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, asked)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert not one.asked
    await one.client.close()


@pytest.mark.parametrize("serialization", [0, 1])
async def test_an_answer_is_passed_on_whatever_its_code(
    broker: SingleBroker, serialization: int
) -> None:
    def answers(connection: Connection, frame: Frame) -> None:
        connection.respond(frame, 40000, "odd")

    one = RemotingClient(broker.loop, {RequestCode.GET_CONSUMER_RUNNING_INFO: answers})
    body = b'{"clientID":"one","consumerDataSet":[{"groupName":"readers"}]}'
    await one.invoke(ADDRESS, RequestCode.HEART_BEAT, {}, (body,))
    asker = RemotingClient(broker.loop, serialization=serialization)
    answer = await asker.invoke(ADDRESS, RequestCode.GET_CONSUMER_RUNNING_INFO, ONE)
    told = (answer.code, answer.remark)
    assert told == ((1, "code 40000: odd") if serialization else (40000, "odd"))
    await one.close()
    await asker.close()
