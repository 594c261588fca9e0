"""Topics and groups: creating, changing, deleting, listing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from broker.group_commit.batcher import PIPELINE_ENTRIES
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from tests.broker.single_broker import SingleBroker, messages, running_broker, send_ext
from tests.support.virtual_network import NetworkedLoop

CREATION = {
    "topic": "orders",
    "defaultTopic": "TBW102",
    "readQueueNums": "4",
    "writeQueueNums": "4",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": "0",
    "order": "false",
}


async def test_a_created_topic_is_listed_with_its_settings(broker: SingleBroker) -> None:
    answer = await broker.ask(
        RequestCode.UPDATE_AND_CREATE_TOPIC, CREATION | {"readQueueNums": 8, "order": True}
    )
    assert answer.code == ResponseCode.SUCCESS
    listed = orjson.loads((await broker.ask(RequestCode.GET_ALL_TOPIC_CONFIG)).body)
    assert listed["topicConfigTable"]["orders"] == {
        "order": True,
        "perm": 6,
        "readQueueNums": 8,
        "topicFilterType": "SINGLE_TAG",
        "topicName": "orders",
        "topicSysFlag": 0,
        "writeQueueNums": 4,
    }
    assert listed["dataVersion"]["counter"] == 1


@pytest.mark.parametrize(
    ("changed", "remark"),
    [
        ({"topic": "a b"}, "the topic name 'a b' may only have"),
        ({"topic": "TBW102"}, "TBW102 is a system topic"),
        ({"topic": "DefaultCluster"}, "DefaultCluster is a system topic"),
        ({"writeQueueNums": "0"}, "field writeQueueNums is not between 1 and 16384: 0"),
        ({"readQueueNums": "16385"}, "field readQueueNums is not between 1 and 16384"),
        ({"perm": "8"}, "field perm is not between 0 and 7: 8"),
        ({"topicFilterType": "NO_TAG"}, "topicFilterType 'NO_TAG' is none of SINGLE_TAG"),
        ({"topic": "rmq_sys_mine"}, "the prefix of rmq_sys_mine is reserved"),
    ],
)
async def test_a_topic_that_may_not_be_is_refused(
    broker: SingleBroker, changed: dict[str, str], remark: str
) -> None:
    answer = await broker.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, CREATION | changed)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert remark in (answer.remark or "")


@pytest.mark.parametrize("filter_type", ["SINGLE_TAG", "MULTI_TAG", None])
async def test_the_filter_type_of_a_topic_changes_nothing(
    broker: SingleBroker, filter_type: str | None
) -> None:
    ext = CREATION | {"topicFilterType": filter_type}
    answer = await broker.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, ext)
    assert answer.code == ResponseCode.SUCCESS


SYSTEM = {
    "BenchmarkTest": (1024, 6),
    "DefaultCluster": (16, 7),
    "DefaultCluster_REPLY_TOPIC": (1, 6),
    "OFFSET_MOVED_EVENT": (1, 4),
    "SELF_TEST_TOPIC": (1, 4),
    "TBW102": (8, 7),
    "broker-a": (1, 7),
}
"""Queues and permissions of what is there from the start."""


async def test_topics_of_the_system_are_there_from_the_start(broker: SingleBroker) -> None:
    """Java's createTopic(key, ...) asks where the topic ``key`` is: the cluster, or a broker."""

    announced = broker.broker.announcements.current().topics
    answer = await broker.ask(RequestCode.GET_ALL_TOPIC_CONFIG)
    for table in (announced, orjson.loads(answer.body)["topicConfigTable"]):
        found = {name: (each["writeQueueNums"], each["perm"]) for name, each in table.items()}
        assert found == SYSTEM
    for name in SYSTEM:
        answer = await broker.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": name})
        assert orjson.loads(answer.body)["topicName"] == name
        answer = await broker.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, CREATION | {"topic": name})
        assert "is a system topic" in (answer.remark or "")
        answer = await broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": name})
        assert "is a system topic" in (answer.remark or "")
        sent = await broker.ask(RequestCode.SEND_MESSAGE_V2, send_ext(name, 0), b"x")
        refused = ResponseCode.NO_PERMISSION
        assert sent.code == (ResponseCode.SUCCESS if SYSTEM[name][1] & 2 else refused)
    assert broker.broker.context.machine.state.topics_version.counter == 0


async def test_a_topic_made_as_the_cluster_s_says_takes_its_queues(broker: SingleBroker) -> None:
    for name, key, queues in (("a", "DefaultCluster", 9), ("b", "broker-a", 1)):
        ext = send_ext(name, 0) | {"c": key, "d": "9"}
        assert (await broker.ask(RequestCode.SEND_MESSAGE_V2, ext, b"x")).code == 0
        topic = broker.broker.context.machine.state.topics[name]
        assert (topic.write_queues, topic.perm) == (queues, 6)


async def test_a_deleted_topic_created_again_goes_on_where_it_ended(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    async with running_broker(loop, tmp_path) as broker:
        await broker.create_topic("orders")
        await broker.send("orders", 0, b"old")
        await broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"})
        gone = await broker.pull("orders", 0, 0)
        assert gone.code == ResponseCode.TOPIC_NOT_EXIST
        await broker.create_topic("orders")
        empty = await broker.pull("orders", 0, 0)
        assert (empty.code, empty.ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "1")
    async with running_broker(loop, tmp_path) as broker:
        sent = await broker.send("orders", 0, b"new")
        assert sent.ext["queueOffset"] == "1"
        (record,) = messages(await broker.pull("orders", 0, 1))
        assert record.body == b"new"
    async with running_broker(loop, tmp_path) as broker:
        await _holds_one_new_message(broker)


async def _holds_one_new_message(broker: SingleBroker) -> None:
    (record,) = messages(await broker.pull("orders", 0, 1))
    assert (record.body, record.queue_offset) == (b"new", 1)


async def test_a_message_behind_the_deletion_of_its_topic_is_kept(broker: SingleBroker) -> None:
    """The message creates the topic again. Both requests wait together for room in the pipeline."""
    await broker.create_topic("orders")
    broker.log_executor.hold()
    asked = []
    for _ in range(PIPELINE_ENTRIES):
        asked.append(asyncio.ensure_future(broker.send("bills", 0, b"fills the pipeline")))
        await asyncio.sleep(0.1)
    deletion = broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"})
    asked += map(asyncio.ensure_future, (deletion, broker.send("orders", 0, b"new")))
    await asyncio.sleep(0.1)
    broker.log_executor.release()
    answers = await asyncio.gather(*asked)
    assert [answer.code for answer in answers] == [ResponseCode.SUCCESS] * len(asked)
    (record,) = messages(await broker.pull("orders", 0, 0))
    assert record.body == b"new"


async def test_the_announcement_changes_with_the_topics(broker: SingleBroker) -> None:
    changes: list[set[str]] = []
    before = set(broker.broker.announcements.current().topics)
    broker.broker.announcements.on_changed = lambda: changes.append(
        broker.broker.announcements.current().topics.keys() - before
    )
    await broker.create_topic("orders")
    assert changes == [{"orders"}]
    announced = broker.broker.announcements.current()
    assert (announced.broker_name, announced.broker_id) == ("broker-a", 0)
    assert announced.data_version["counter"] == 1


# --- groups


async def test_a_group_is_created_changed_listed_and_deleted(broker: SingleBroker) -> None:
    async def groups(broker: SingleBroker) -> dict[str, Any]:
        answer = await broker.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        table: dict[str, Any] = orjson.loads(answer.body)["subscriptionGroupTable"]
        return table

    body = b'{"groupName":"g","consumeEnable":false,"retryMaxTimes":3,"unknown":1}'
    await broker.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)
    assert (await groups(broker))["g"] == {
        "brokerId": 0,
        "consumeBroadcastEnable": True,
        "consumeEnable": False,
        "consumeFromMinEnable": True,
        "groupName": "g",
        "notifyConsumerIdsChangedEnable": True,
        "retryMaxTimes": 3,
        "retryQueueNums": 1,
        "whichBrokerWhenConsumeSlowly": 1,
    }
    await broker.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g"})
    assert await groups(broker) == {}


async def test_a_group_that_may_not_consume_is_refused(broker: SingleBroker) -> None:
    await broker.create_topic("orders")
    body = b'{"groupName":"readers","consumeEnable":false}'
    await broker.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)
    answer = await broker.pull("orders", 0, 0)
    assert answer.code == ResponseCode.NO_PERMISSION


@pytest.mark.parametrize(
    ("body", "remark"),
    [
        (b"", "the body is not JSON"),
        (b"[]", "the group is not a JSON object"),
        (b'{"groupName":"a b"}', "the group name 'a b'"),
        (b'{"groupName":"g","retryMaxTimes":"3"}', "retryMaxTimes is not an integer"),
        (b'{"groupName":"g","consumeEnable":1}', "consumeEnable is not a boolean"),
        (b'{"groupName":"g","brokerId":-1}', "brokerId is not between 0"),
    ],
)
async def test_a_group_that_makes_no_sense_is_refused(
    broker: SingleBroker, body: bytes, remark: str
) -> None:
    answer = await broker.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert remark in (answer.remark or "")


async def test_the_settings_of_a_topic_are_told_only_once_it_is_sure_who_leads(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    """A node that no majority answers cannot know, and says so (the scenarios of the core show it
    for a leader that was deposed without noticing)."""

    async with running_broker(loop, tmp_path / "alone", serving=False) as broker:
        answer = await broker.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "TBW102"})
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    async with running_broker(loop, tmp_path) as broker:
        await broker.create_topic("orders", queues=3)
        answer = await broker.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "orders"})
        assert orjson.loads(answer.body)["writeQueueNums"] == 3
        missing = await broker.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "bills"})
        assert missing.code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_created_group_has_the_retry_topic_by_which_tools_find_it(
    broker: SingleBroker,
) -> None:
    body = b'{"groupName":"readers","retryQueueNums":2}'
    answer = await broker.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)
    assert answer.code == ResponseCode.SUCCESS
    topic = broker.broker.context.machine.state.topics["%RETRY%readers"]
    assert (topic.read_queues, topic.write_queues, topic.perm) == (2, 2, 6)
