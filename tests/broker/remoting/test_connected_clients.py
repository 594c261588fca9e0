"""Clients: heartbeats, the members of a group, and who is told of a change."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import pytest

from broker.remoting.client import RemotingClient
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.remoting.protocol.frame import Frame
from tests.broker.single_broker import ADDRESS, NOW_MS, SingleBroker


class Member:
    """A consumer with a connection of its own, that counts how often it is told of a change."""

    def __init__(self, broker: SingleBroker, client_id: str) -> None:
        self.client_id = client_id
        self.told = 0
        self.client = RemotingClient(
            broker.loop, {RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._told}
        )

    def _told(self, _connection: object, frame: Frame) -> None:
        assert frame.ext == {"consumerGroup": "readers"}
        self.told += 1

    async def ask(self, code: int, ext: Mapping[str, str], body: bytes = b"") -> Frame:
        return await self.client.invoke(ADDRESS, code, ext, (body,))

    async def heartbeat(self, topics: Sequence[str] = ("orders",)) -> None:
        body = {
            "clientID": self.client_id,
            "consumerDataSet": [
                {
                    "groupName": "readers",
                    "consumeType": 1,
                    "messageModel": 1,
                    "consumeFromWhere": 0,
                    "subscriptionDataSet": [
                        {"topic": topic, "subString": "*", "subVersion": 1} for topic in topics
                    ],
                }
            ],
        }
        answer = await self.ask(RequestCode.HEART_BEAT, {}, orjson.dumps(body))
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        await asyncio.sleep(0.01)


async def members(broker: SingleBroker) -> list[str]:
    answer = await broker.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "readers"})
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    listed: list[str] = orjson.loads(answer.body)["consumerIdList"]
    return listed


async def test_a_heartbeat_creates_the_group_and_its_retry_topic(broker: SingleBroker) -> None:
    one = Member(broker, "one")
    await one.heartbeat()
    state = broker.broker.context.machine.state
    assert list(state.groups) == ["readers"]
    retry = state.topics["%RETRY%readers"]
    assert (retry.read_queues, retry.write_queues, retry.perm) == (1, 1, 6)
    index = broker.broker.context.node.applied_index
    await one.heartbeat()
    assert broker.broker.context.node.applied_index == index
    await one.client.close()


async def test_everybody_is_told_when_a_member_comes_or_goes(broker: SingleBroker) -> None:
    one, two = Member(broker, "one"), Member(broker, "two")
    await one.heartbeat()
    assert one.told == 1
    await two.heartbeat()
    assert (one.told, two.told) == (2, 1)
    assert await members(broker) == ["one", "two"]
    await one.heartbeat()
    assert (one.told, two.told) == (2, 1)
    await two.ask(
        RequestCode.UNREGISTER_CLIENT,
        {"clientID": "two", "consumerGroup": "readers", "producerGroup": ""},
    )
    await asyncio.sleep(0.01)
    assert one.told == 3
    assert await members(broker) == ["one"]
    for member in (one, two):
        await member.client.close()


async def test_a_closed_connection_is_a_member_that_left(broker: SingleBroker) -> None:
    one, two = Member(broker, "one"), Member(broker, "two")
    await one.heartbeat()
    await two.heartbeat()
    await two.client.close()
    await asyncio.sleep(0.01)
    assert one.told == 3
    assert await members(broker) == ["one"]
    await one.client.close()


async def test_a_member_that_is_silent_for_two_minutes_is_forgotten(broker: SingleBroker) -> None:
    one, two = Member(broker, "one"), Member(broker, "two")
    await one.heartbeat()
    await two.heartbeat()
    for _ in range(5):
        await asyncio.sleep(30)
        await one.heartbeat()
        # Not a heartbeat, but the connection is in use.
        await two.ask(RequestCode.GET_ALL_TOPIC_CONFIG, {})
    assert await members(broker) == ["one"]
    for member in (one, two):
        await member.client.close()


async def test_a_changed_subscription_is_told(broker: SingleBroker) -> None:
    one = Member(broker, "one")
    await one.heartbeat(["orders"])
    await one.heartbeat(["orders", "bills"])
    assert one.told == 2
    assert broker.broker.context.clients.subscription("readers", "bills") is not None
    await one.heartbeat(["orders"])
    assert broker.broker.context.clients.subscription("readers", "bills") is None
    await one.client.close()


async def test_a_group_may_wish_not_to_be_told(broker: SingleBroker) -> None:
    body = b'{"groupName":"readers","notifyConsumerIdsChangedEnable":false}'
    await broker.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)
    one = Member(broker, "one")
    await one.heartbeat()
    assert one.told == 0
    await one.client.close()


async def test_a_group_without_members_is_an_error_to_who_asks(broker: SingleBroker) -> None:
    for code, expected in (
        (RequestCode.GET_CONSUMER_LIST_BY_GROUP, ResponseCode.SYSTEM_ERROR),
        (RequestCode.GET_CONSUMER_CONNECTION_LIST, ResponseCode.CONSUMER_NOT_ONLINE),
    ):
        assert (await broker.ask(code, {"consumerGroup": "none"})).code == expected


async def test_operators_see_who_is_connected_and_for_what(broker: SingleBroker) -> None:
    one = Member(broker, "one")
    await one.heartbeat()
    answer = await broker.ask(
        RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "readers"}
    )
    seen: dict[str, Any] = orjson.loads(answer.body)
    assert [each["clientId"] for each in seen["connectionSet"]] == ["one"]
    assert (seen["consumeType"], seen["messageModel"]) == ("CONSUME_PASSIVELY", "CLUSTERING")
    assert seen["subscriptionTable"]["orders"]["subString"] == "*"
    await one.client.close()


async def test_a_producer_alone_needs_no_consumer_data(broker: SingleBroker) -> None:
    body = b'{"clientID":"p@1","producerDataSet":[{"groupName":"makers"}]}'
    assert (await broker.ask(RequestCode.HEART_BEAT, {}, body)).code == ResponseCode.SUCCESS
    answer = await broker.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "makers"})
    assert [c["clientId"] for c in orjson.loads(answer.body)["connectionSet"]] == ["p@1"]
    everybody = await broker.ask(RequestCode.GET_ALL_PRODUCER_INFO)
    (maker,) = orjson.loads(everybody.body)["data"]["makers"]
    assert (maker["clientId"], maker["lastUpdateTimestamp"]) == ("p@1", NOW_MS)


@pytest.mark.parametrize(
    ("body", "remark"),
    [
        (b"{", "the body is not JSON"),
        (b"[]", "the heartbeat is not a JSON object"),
        (b"{}", "the heartbeat has no clientID"),
        (b'{"clientID":"c","consumerDataSet":{"g":1}}', "consumerDataSet is not a list"),
        (b'{"clientID":"c","consumerDataSet":[{}]}', "a group has no name"),
        (b'{"clientID":"c","consumerDataSet":[{"groupName":"a b"}]}', "the group name 'a b'"),
        (
            b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{}]}]}',
            "a subscription has no topic",
        ),
    ],
)
async def test_a_heartbeat_that_makes_no_sense_is_refused(
    broker: SingleBroker, body: bytes, remark: str
) -> None:
    answer = await broker.ask(RequestCode.HEART_BEAT, {}, body)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert remark in (answer.remark or "")


@pytest.mark.parametrize(
    ("subscription", "code"),
    [
        (b'{"expressionType":"TAG","subString":"a || b"}', ResponseCode.SUCCESS),
        (b'{"expressionType":"SQL92","subString":"a > 5"}', ResponseCode.SUCCESS),
        (b'{"expressionType":"SQL92","subString":"a >"}', ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        (b'{"expressionType":"JS","subString":"a > 5"}', ResponseCode.SUBSCRIPTION_PARSE_FAILED),
    ],
)
async def test_a_client_learns_at_its_start_whether_its_filter_works(
    broker: SingleBroker, subscription: bytes, code: ResponseCode
) -> None:
    body = b'{"clientId":"c","subscriptionData":%b}' % subscription
    assert (await broker.ask(RequestCode.CHECK_CLIENT_CONFIG, {}, body)).code == code
