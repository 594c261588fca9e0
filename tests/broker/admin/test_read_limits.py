"""What one question brings at most, however large the numbers are that it goes by."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
import pytest

from broker.http.json_documents import topics_document
from broker.limits import ADMIN, CONSUME, PRODUCE, STATE
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.remoting.protocol.frame import Frame
from broker.state.commands import PutGroup, PutTopic
from broker.state.recent_entries import RecentEntries
from broker.topics_and_groups import GroupConfig, TopicConfig
from tests.broker.single_broker import SingleBroker, messages, running_broker
from tests.support.virtual_network import NetworkedLoop

ANY = 2**31 - 1


async def older_topic(broker: SingleBroker, name: str, queues: int = ANY) -> None:
    """A topic as states may have it that are older than the limits."""
    batcher = broker.broker.context.batcher
    batcher.add_command(PutTopic.of(TopicConfig(name, queues, queues), 1))
    await asyncio.sleep(0.1)


async def topic_stats(broker: SingleBroker, name: str) -> list[int]:
    """The queues in the answer to 202."""
    answer = await broker.ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": name})
    assert answer.code == ResponseCode.SUCCESS
    return [int(part.split(b",")[0]) for part in answer.body.split(b'"queueId":')[1:]]


async def test_a_topic_with_any_number_of_queues_is_listed_by_those_with_messages(
    broker: SingleBroker,
) -> None:
    await older_topic(broker, "orders")
    assert await topic_stats(broker, "orders") == [0]
    for queue_id in (7, ANY - 1):
        assert (await broker.send("orders", queue_id, b"x")).code == ResponseCode.SUCCESS
    assert await topic_stats(broker, "orders") == [0, 7, ANY - 1]
    spans = {"topic": "orders", "group": "g"}
    answer = await broker.ask(RequestCode.QUERY_CONSUME_TIME_SPAN, spans)
    assert len(orjson.loads(answer.body)["consumeTimeSpanSet"]) == 3
    (orders,) = (
        topic
        for topic in (await topics_document(broker.broker.context))["topics"]
        if topic["name"] == "orders"
    )
    assert (orders["read_queues"], orders["messages"]) == (ANY, 2)
    announced = broker.broker.announcements.current().topics["orders"]
    assert announced["readQueueNums"] == announced["writeQueueNums"] == STATE.queues_max


async def test_a_topic_of_few_queues_is_listed_with_the_empty_ones(broker: SingleBroker) -> None:
    most = ADMIN.empty_queues_max
    await broker.create_topic("orders", queues=most)
    assert await topic_stats(broker, "orders") == list(range(most))
    await broker.create_topic("orders", queues=most + 1)
    assert await topic_stats(broker, "orders") == [0]


async def test_a_group_is_moved_in_the_queues_that_are_there(broker: SingleBroker) -> None:
    await older_topic(broker, "orders")
    await broker.send("orders", 7, b"x")
    consumer = {
        "groupName": "readers",
        "subscriptionDataSet": [{"topic": "orders", "subString": "*"}],
    }
    body = orjson.dumps({"clientID": "c", "consumerDataSet": [consumer]})
    await broker.ask(RequestCode.HEART_BEAT, {}, body)
    ext = {"topic": "orders", "group": "readers", "timestamp": "-1", "isForce": "true"}
    answer = await broker.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext)
    assert answer.code == ResponseCode.SUCCESS
    offsets = broker.broker.context.machine.state.offsets["readers", "orders"]
    assert offsets == {0: 0, 7: 1}
    beyond = await broker.ask(
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext | {"queueId": str(ANY)}
    )
    assert "has no queue 2147483647" in (beyond.remark or "")


async def test_an_older_group_with_any_number_of_retry_queues_uses_few(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    async with running_broker(loop, tmp_path, clock_runs=True) as broker:
        await broker.create_topic("orders")
        await broker.send("orders", 0, b"x")
        batcher = broker.broker.context.batcher
        batcher.add_command(PutGroup.of(GroupConfig("readers", retry_queues=ANY), 1))
        await asyncio.sleep(0.1)
        (record,) = messages(await broker.pull("orders", 0, 0))
        ext = {"group": "readers", "offset": str(record.position), "delayLevel": "1"}
        answer = await broker.ask(RequestCode.CONSUMER_SEND_MSG_BACK, ext)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        await asyncio.sleep(5)
        retries = broker.broker.context.machine.queues("%RETRY%readers")
        assert all(queue_id < STATE.retry_queues_max for queue_id in retries)


async def test_a_pull_brings_so_many_bytes_and_is_held_for_so_long(
    loop: NetworkedLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = CONSUME._replace(pull_bytes_max=500, pull_messages_max=3, long_poll_seconds_max=7.0)
    monkeypatch.setattr("broker.delivery.fetch.CONSUME", few)

    async def count(broker: SingleBroker, **changed: str) -> int:
        return len(messages(await broker.pull("orders", 0, 0, **changed)))

    async with running_broker(loop, tmp_path) as broker:
        await broker.create_topic("orders")
        for size in (1, 1, 1, 1, 300):
            await broker.send("orders", 0, b"x" * size)
        assert await count(broker, maxMsgNums="1000") == 3
        await broker.send("orders", 1, b"x" * 300)
        await broker.send("orders", 1, b"x" * 300)
        big = await broker.pull("orders", 1, 0, maxMsgNums="1000", maxMsgBytes=str(1 << 30))
        assert len(messages(big)) == 1
        began = broker.loop.time()
        held = {"sysFlag": "6", "suspendTimeoutMillis": str(10**12)}
        answer = await broker.pull("orders", 2, 0, **held)
        assert answer.code == ResponseCode.PULL_NOT_FOUND
        assert 7 <= broker.loop.time() - began < 8


async def test_a_query_brings_so_many_messages_or_rows(
    loop: NetworkedLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = CONSUME._replace(query_messages_max=2, queue_rows_max=3)
    monkeypatch.setattr("broker.remoting.processors.query_message.CONSUME", few)
    monkeypatch.setattr("broker.remoting.processors.query_consume_queue.CONSUME", few)

    async def asked(broker: SingleBroker, code: int, **ext: str) -> Frame:
        return await broker.ask(code, {"topic": "orders"} | ext)

    async with running_broker(loop, tmp_path) as broker:
        await broker.create_topic("orders")
        for _ in range(5):
            await broker.send("orders", 0, b"x", "KEYS\x01k\x02")
        times = {"beginTimestamp": "0", "endTimestamp": str(2**62)}
        found = await asked(broker, RequestCode.QUERY_MESSAGE, key="k", maxNum="9999", **times)
        assert len(messages(found)) == 2
        monkeypatch.setattr(
            "broker.delivery.message_lookup.CONSUME", few._replace(query_bytes_max=1)
        )
        found = await asked(broker, RequestCode.QUERY_MESSAGE, key="k", maxNum="9999", **times)
        assert [record.queue_offset for record in messages(found)] == [4]
        where = {"queueId": "0", "index": "0", "count": str(ANY)}
        rows = await asked(broker, RequestCode.QUERY_CONSUME_QUEUE, **where)
        assert len(orjson.loads(rows.body)["queueData"]) == 3


async def test_so_much_of_the_newest_entries_is_kept_in_memory(broker: SingleBroker) -> None:
    machine = broker.broker.context.machine
    assert machine._recent._bytes_max == PRODUCE.recent_bytes_max
    machine._recent = RecentEntries(2_000)
    await broker.create_topic("orders")
    for _ in range(20):
        await broker.send("orders", 0, b"x" * 100)
    found = messages(await broker.pull("orders", 0, 0))
    assert len(found) == 20
    assert machine.recent(found[0].position, 10) is None
    assert machine.recent(found[-1].position, 10) is not None
