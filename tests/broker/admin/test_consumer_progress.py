"""How far groups are, as tools ask it."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.remoting.protocol.java_json import decode_json
from tests.broker.single_broker import NOW_MS, SingleBroker

QUEUE = {"brokerName": "broker-a", "queueId": 0, "topic": "orders"}


async def consumed(broker: SingleBroker) -> None:
    """Three messages, one stored each second; the group ``readers`` has consumed the first."""
    await broker.create_topic("orders", queues=1)
    for tag in ("a", "b", "a"):
        await broker.send("orders", 0, b"x", f"TAGS\x01{tag}\x02")
        broker.now_ms += 1000
    group = b'{"groupName":"readers"}'
    await broker.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, group)
    place = {"consumerGroup": "readers", "topic": "orders", "queueId": "0", "commitOffset": "1"}
    await broker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, place)


async def join(broker: SingleBroker) -> None:
    body = (
        b'{"clientID":"c","consumerDataSet":[{"groupName":"readers","subscriptionDataSet":'
        b'[{"topic":"orders","subString":"a","subVersion":1}]}]}'
    )
    assert (await broker.ask(RequestCode.HEART_BEAT, {}, body)).code == ResponseCode.SUCCESS


async def told(broker: SingleBroker, code: int, **ext: str) -> Any:
    answer = await broker.ask(code, ext)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return decode_json(answer.body)


async def test_the_next_message_of_a_group_has_waited_since_it_was_stored(
    broker: SingleBroker,
) -> None:
    await consumed(broker)
    code = RequestCode.QUERY_CONSUME_TIME_SPAN
    (span,) = (await told(broker, code, topic="orders", group="readers"))["consumeTimeSpanSet"]
    assert span == {
        "messageQueue": QUEUE,
        "minTimeStamp": NOW_MS,
        "maxTimeStamp": NOW_MS + 2000,
        "consumeTimeStamp": NOW_MS,
        "delayTime": 2000,
    }


async def test_an_empty_queue_has_the_times_of_rocketmq(broker: SingleBroker) -> None:
    await broker.create_topic("orders", queues=1)
    code = RequestCode.QUERY_CONSUME_TIME_SPAN
    (span,) = (await told(broker, code, topic="orders", group="readers"))["consumeTimeSpanSet"]
    assert span == {
        "messageQueue": QUEUE,
        "minTimeStamp": -1,
        "maxTimeStamp": -1,
        "consumeTimeStamp": -1,
        "delayTime": 0,
    }


async def test_the_progress_of_all_groups_is_told_at_once(broker: SingleBroker) -> None:
    await consumed(broker)
    found = await told(broker, RequestCode.GET_BROKER_CONSUME_STATS, isOrder="false")
    assert (found["brokerAddr"], found["totalDiff"]) == ("127.0.0.1:10911", 2)
    ((group, (stats,)),) = found["consumeStatsList"][0].items()
    ((queue, entry),) = stats["offsetTable"].items()
    assert (group, orjson.loads(queue)) == ("readers", QUEUE)
    assert entry == {"brokerOffset": 3, "consumerOffset": 1, "lastTimestamp": NOW_MS}
    ordered = await told(broker, RequestCode.GET_BROKER_CONSUME_STATS, isOrder="true")
    assert (ordered["consumeStatsList"], ordered["totalDiff"]) == ([], 0)


async def test_rows_of_a_queue_are_told_with_what_a_group_wants_of_them(
    broker: SingleBroker,
) -> None:
    await consumed(broker)
    asked = {"topic": "orders", "queueId": "0", "index": "1", "count": "5"}
    asked["consumerGroup"] = "readers"
    found = await told(broker, RequestCode.QUERY_CONSUME_QUEUE, **asked)
    assert found["filterData"] == "readers@orders is not online!"
    assert [row["eval"] for row in found["queueData"]] == [True, True]
    await join(broker)
    found = await told(broker, RequestCode.QUERY_CONSUME_QUEUE, **asked)
    assert "filterData" not in found
    assert (found["minQueueIndex"], found["maxQueueIndex"]) == (0, 3)
    assert found["subscriptionData"]["subString"] == "a"
    assert [row["eval"] for row in found["queueData"]] == [False, True]
    assert [row["tagsCode"] for row in found["queueData"]] == [ord("b"), ord("a")]


async def test_the_topics_and_subscriptions_of_a_group_are_told(broker: SingleBroker) -> None:
    await consumed(broker)
    code = RequestCode.QUERY_TOPICS_BY_CONSUMER
    assert await told(broker, code, group="readers") == {"topicList": ["orders"]}
    await join(broker)
    code = RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER
    found = await told(broker, code, group="readers", topic="orders")
    assert found["subscriptionData"]["tagsSet"] == ["a"]
    assert await told(broker, code, group="readers", topic="none") == {
        "group": "readers",
        "topic": "none",
    }


@pytest.mark.parametrize(
    ("code", "ext", "refusal"),
    [
        (
            RequestCode.QUERY_CONSUME_TIME_SPAN,
            {"topic": "none", "group": "readers"},
            ResponseCode.TOPIC_NOT_EXIST,
        ),
        (
            RequestCode.QUERY_CONSUME_QUEUE,
            {"topic": "none", "queueId": "0", "index": "0", "count": "1"},
            ResponseCode.TOPIC_NOT_EXIST,
        ),
        (
            RequestCode.QUERY_CONSUME_QUEUE,
            {"topic": "TBW102", "queueId": "-1", "index": "0", "count": "1"},
            ResponseCode.SYSTEM_ERROR,
        ),
        (
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER,
            {"topic": "orders", "group": "readers"},
            ResponseCode.CONSUMER_NOT_ONLINE,
        ),
    ],
)
async def test_what_is_not_there_is_refused(
    broker: SingleBroker, code: int, ext: dict[str, str], refusal: ResponseCode
) -> None:
    answer = await broker.ask(code, ext)
    assert (answer.code, bool(answer.remark)) == (refusal, True)
