"""What operators and Apache's tools are told."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson

from broker.metrics.broker_metrics import DAY_MS
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from tests.broker.single_broker import NOW_MS, SingleBroker, running_broker
from tests.support.virtual_network import NetworkedLoop

QUEUE = b'{"brokerName":"broker-a","queueId":0,"topic":"orders"}'


async def consumed(broker: SingleBroker) -> None:
    """Two messages in queue 0 of the topic orders, one of them consumed by the group readers."""
    await broker.create_topic("orders", queues=1)
    for _ in range(2):
        await broker.send("orders", 0, b"x")
    await broker.ask(
        RequestCode.UPDATE_CONSUMER_OFFSET,
        {"consumerGroup": "readers", "topic": "orders", "queueId": "0", "commitOffset": "1"},
    )


async def test_runtime_info_tells_the_state_of_the_group_in_strings(broker: SingleBroker) -> None:
    answer = await broker.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
    table = orjson.loads(answer.body)["table"]
    assert all(type(value) is str for value in table.values())
    assert {
        "raftGroup": "broker-a",
        "raftNode": "n0",
        "raftRole": "leader",
        "raftTerm": "1",
        "raftLeader": "n0",
        "raftServing": "true",
        "raftLastIndex": "0",
        "raftCommitIndex": "0",
        "raftAppliedIndex": "0",
        "httpAddress": "127.0.0.1:8080",
        "grpcAddress": "",
    }.items() <= table.items()
    assert orjson.loads(table["raftMembers"]) == {
        "n0": {
            "address": "127.0.0.1:10911",
            "http": "127.0.0.1:8080",
            "peer": "127.0.0.1:40911",
        }
    }
    assert table["pid"].isdigit()


TOOLS_FAIL_WITHOUT = {
    "brokerVersionDesc",
    "putTps",
    "getTransferedTps",
    "getFoundTps",
    "getMissTps",
    "getTotalTps",
    "msgPutTotalYesterdayMorning",
    "msgPutTotalTodayMorning",
    "msgPutTotalTodayNow",
    "msgGetTotalYesterdayMorning",
    "msgGetTotalTodayMorning",
    "msgGetTotalTodayNow",
    "sendThreadPoolQueueSize",
    "sendThreadPoolQueueHeadWaitTimeMills",
    "pullThreadPoolQueueSize",
    "pullThreadPoolQueueHeadWaitTimeMills",
    "pageCacheLockTimeMills",
    "earliestMessageTimeStamp",
    "commitLogDiskRatio",
}


async def info_of(broker: SingleBroker) -> dict[str, str]:
    answer = await broker.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
    table: dict[str, str] = orjson.loads(answer.body)["table"]
    return table


async def test_runtime_info_has_what_apaches_tools_compute_with(broker: SingleBroker) -> None:
    before = await info_of(broker)
    assert before.keys() >= TOOLS_FAIL_WITHOUT
    assert before["earliestMessageTimeStamp"] == str(NOW_MS)
    await consumed(broker)
    broker.now_ms += 1000
    await broker.send("orders", 0, b"x")
    await broker.pull("orders", 0, 0)
    await broker.pull("orders", 0, 3)
    info = await info_of(broker)
    assert (info["msgPutTotalTodayNow"], info["msgGetTotalTodayNow"]) == ("3", "3")
    assert info["earliestMessageTimeStamp"] == str(NOW_MS)
    await asyncio.sleep(20)
    rates = {key: (await info_of(broker))[key] for key in ("putTps", "getMissTps")}
    assert [rate.split(" ")[0] for rate in rates.values()] == ["0.00", "0.00"]
    assert all(float(rate.split(" ")[1]) > 0 for rate in rates.values())


async def test_a_new_day_begins_to_count_at_midnight(broker: SingleBroker) -> None:
    await consumed(broker)
    for today, yesterday in (("2", "0"), ("2", "2")):
        broker.now_ms += DAY_MS
        await asyncio.sleep(10)
        info = await info_of(broker)
        assert info["msgPutTotalTodayMorning"] == today
        assert info["msgPutTotalYesterdayMorning"] == yesterday


async def test_a_node_without_a_leader_still_tells_what_it_is(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    async with running_broker(loop, tmp_path, serving=False) as broker:
        answer = await broker.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
        table = orjson.loads(answer.body)["table"]
        assert (table["raftRole"], table["raftLeader"], table["raftServing"]) == (
            "follower",
            "",
            "false",
        )


async def test_the_config_is_properties_text(broker: SingleBroker) -> None:
    answer = await broker.ask(RequestCode.GET_BROKER_CONFIG)
    lines = answer.body.decode().splitlines()
    assert {"brokerName=broker-a", "brokerId=0", "flushDiskType=SYNC_FLUSH"} <= set(lines)
    assert orjson.loads(str(answer.ext["version"])) == {"counter": 0, "timestamp": 0}


EXPORTED = {
    "brokerClusterName",
    "brokerId",
    "brokerName",
    "brokerRole",
    "fileReservedTime",
    "filterServerNums",
    "flushDiskType",
    "maxMessageSize",
    "messageDelayLevel",
    "msgTraceTopicName",
    "slaveReadEnable",
    "traceOn",
    "traceTopicEnable",
    "useTLS",
    "autoCreateTopicEnable",
    "autoCreateSubscriptionGroup",
}


async def test_the_config_has_what_apaches_tools_export(broker: SingleBroker) -> None:
    answer = await broker.ask(RequestCode.GET_BROKER_CONFIG)
    settings = dict(line.split("=", 1) for line in answer.body.decode().splitlines())
    assert settings.keys() >= EXPORTED
    assert settings["messageDelayLevel"] == (
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    )


async def test_all_offsets_are_told_as_apache_writes_them(broker: SingleBroker) -> None:
    await consumed(broker)
    answer = await broker.ask(RequestCode.GET_ALL_CONSUMER_OFFSET)
    assert answer.body == b'{"offsetTable":{"orders@readers":{0:1}}}'


async def test_topic_stats_have_queues_as_keys(broker: SingleBroker) -> None:
    await consumed(broker)
    answer = await broker.ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "orders"})
    entry = b'{"lastUpdateTimestamp":%d,"maxOffset":2,"minOffset":0}' % NOW_MS
    assert answer.body == b'{"offsetTable":{%b:%b}}' % (QUEUE, entry)
    unknown = await broker.ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "none"})
    assert unknown.code == ResponseCode.TOPIC_NOT_EXIST


async def test_consume_stats_show_how_far_a_group_is(broker: SingleBroker) -> None:
    await consumed(broker)
    answer = await broker.ask(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "readers"})
    entry = b'{"brokerOffset":2,"consumerOffset":1,"lastTimestamp":%d}' % NOW_MS
    assert answer.body == b'{"consumeTps":0.0,"offsetTable":{%b:%b}}' % (QUEUE, entry)


async def test_the_groups_of_a_topic_are_those_that_consumed_it(broker: SingleBroker) -> None:
    await consumed(broker)
    answer = await broker.ask(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "orders"})
    assert orjson.loads(answer.body) == {"groupList": ["readers"]}


async def test_an_unknown_request_is_answered_with_3(broker: SingleBroker) -> None:
    answer = await broker.ask(RequestCode.PEEK_MESSAGE)
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert answer.remark == "request code 200052 is not supported"
