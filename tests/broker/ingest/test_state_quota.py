"""Each limit of the replicated state, and the refusal that says it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from broker.ingest import state_quota
from broker.limits import STATE, StateLimits
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.remoting.protocol.frame import FRAME_BODY_SIZE_MAX, Frame
from broker.remoting.protocol.register_broker_body import TABLE_BYTES
from broker.state.broker_state import BrokerState
from broker.state.commands import CommitOffset, DeleteGroup, DeleteTopic, PutGroup, PutTopic
from broker.topics_and_groups import TOPIC_SIZE_MAX, GroupConfig, TopicConfig
from tests.broker.remoting.processors.test_topic_and_group_admin import CREATION
from tests.broker.single_broker import SingleBroker, running_broker
from tests.support.virtual_network import NetworkedLoop

Limit = Callable[..., None]


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> Limit:
    """Sets limits of the state."""

    def set_limits(**limits: int) -> None:
        monkeypatch.setattr(state_quota, "STATE", STATE._replace(**limits))

    return set_limits


async def create(broker: SingleBroker, name: str, queues: int = 4) -> Frame:
    queue_numbers = {"readQueueNums": str(queues), "writeQueueNums": str(queues)}
    ext = CREATION | {"topic": name} | queue_numbers
    return await broker.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, ext)


async def create_group(broker: SingleBroker, name: str, **settings: object) -> Frame:
    body = orjson.dumps({"groupName": name} | settings)
    return await broker.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)


async def beat(broker: SingleBroker, *groups: str) -> Frame:
    consumers = [{"groupName": each, "subscriptionDataSet": []} for each in groups]
    body = orjson.dumps({"clientID": "c", "producerDataSet": [], "consumerDataSet": consumers})
    return await broker.ask(RequestCode.HEART_BEAT, {}, body)


def topics_of(broker: SingleBroker) -> set[str]:
    state = broker.broker.context.machine.state
    return {name for name, each in state.topics.items() if each is not state.system.get(name)}


async def test_sending_creates_topics_up_to_a_limit_and_an_operator_more(
    loop: NetworkedLoop, tmp_path: Path, limit: Limit
) -> None:
    limit(automatic_topics_max=3, topics_max=4)

    async with running_broker(loop, tmp_path) as broker:
        for name in ("a", "b"):
            assert (await broker.send(name, 0, b"x")).code == ResponseCode.SUCCESS
        refused = await broker.send("c", 0, b"x")
        assert refused.code == ResponseCode.TOPIC_NOT_EXIST
        assert "there are 3 topics, of at most 3" in (refused.remark or "")
        assert (await broker.send("a", 0, b"x")).code == ResponseCode.SUCCESS
        assert (await create(broker, "c")).code == ResponseCode.SUCCESS
        refused = await create(broker, "d")
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert refused.remark == (
            "the topic d is not created: there are 4 topics, at most 4 are allowed; "
            "delete some first"
        )
        assert (await create(broker, "c", queues=8)).code == ResponseCode.SUCCESS
        await broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "a"})
        assert (await create(broker, "d")).code == ResponseCode.SUCCESS
        assert topics_of(broker) == {"TBW102", "b", "c", "d"}


async def test_topics_that_are_sent_to_in_one_turn_are_counted_before_they_are_applied(
    loop: NetworkedLoop, tmp_path: Path, limit: Limit
) -> None:
    limit(automatic_topics_max=3)

    async with running_broker(loop, tmp_path) as broker:
        pending = [broker.loop.create_task(broker.send(f"t{n}", 0, b"x")) for n in range(6)]
        codes = [(await answer).code for answer in pending]
        assert codes == [0, 0, *[ResponseCode.TOPIC_NOT_EXIST] * 4]


async def test_the_queues_of_all_topics_have_a_limit(
    loop: NetworkedLoop, tmp_path: Path, limit: Limit
) -> None:
    limit(all_queues_max=30, automatic_queues_max=20)

    async with running_broker(loop, tmp_path) as broker:
        assert (await create(broker, "a", queues=8)).code == ResponseCode.SUCCESS
        refused = await broker.send("b", 0, b"x", d="8")
        assert refused.code == ResponseCode.TOPIC_NOT_EXIST
        assert "there are 16 queues of topics, of at most 20" in (refused.remark or "")
        assert (await broker.send("b", 0, b"x", d="4")).code == ResponseCode.SUCCESS
        refused = await create(broker, "a", queues=19)
        assert refused.remark == (
            "the topic a cannot have 19 queues: all topics have 20, at most 30 are allowed"
        )
        assert (await create(broker, "a", queues=18)).code == ResponseCode.SUCCESS
        assert (await create(broker, "a", queues=2)).code == ResponseCode.SUCCESS
        assert broker.broker.context.batcher.totals().queues == 8 + 4 + 2


async def test_groups_have_a_limit_and_a_tighter_one_where_consumers_create_them(
    loop: NetworkedLoop, tmp_path: Path, limit: Limit
) -> None:
    limit(groups_max=2, automatic_groups_max=1)

    async with running_broker(loop, tmp_path) as broker:
        assert (await beat(broker, "a")).code == ResponseCode.SUCCESS
        for refused in (
            await beat(broker, "b"),
            await broker.pull("TBW102", 0, 0, consumerGroup="b"),
        ):
            assert refused.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
            assert "there are 1 groups, at most 1 are allowed" in (refused.remark or "")
        assert (await beat(broker, "a")).code == ResponseCode.SUCCESS
        assert (await create_group(broker, "b")).code == ResponseCode.SUCCESS
        refused = await create_group(broker, "c")
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert "the subscription group c is not created" in (refused.remark or "")
        assert (await create_group(broker, "b", retryMaxTimes=3)).code == ResponseCode.SUCCESS
        assert topics_of(broker) == {"TBW102", "%RETRY%a", "%RETRY%b"}


@pytest.mark.parametrize(
    ("limits", "what"),
    [
        ({"automatic_groups_max": 2}, "there are 2 groups, at most 2"),
        ({"topics_max": 3}, "there are 3 topics, at most 3"),
    ],
)
async def test_a_heartbeat_creates_all_of_its_groups_or_none(
    loop: NetworkedLoop, tmp_path: Path, limit: Limit, limits: dict[str, int], what: str
) -> None:
    limit(**limits)

    async with running_broker(loop, tmp_path) as broker:
        refused = await beat(broker, "a", "b", "c")
        assert what in (refused.remark or "")
        await asyncio.sleep(1)
        state = broker.broker.context.machine.state
        assert (state.groups, topics_of(broker)) == ({}, {"TBW102"})
        if "automatic_groups_max" in limits:
            assert (await beat(broker, "a", "b")).code == ResponseCode.SUCCESS
            assert set(state.groups) == {"a", "b"}


async def test_a_group_has_a_limit_of_retry_queues(broker: SingleBroker) -> None:
    refused = await create_group(broker, "readers", retryQueueNums=2**31 - 1)
    assert refused.remark == "retryQueueNums is not between 0 and 256: 2147483647"
    assert topics_of(broker) == {"TBW102"}
    assert (await create_group(broker, "readers", retryQueueNums=STATE.retry_queues_max)).code == 0


def test_the_settings_of_all_topics_fit_a_frame_in_a_list_and_in_a_registration() -> None:
    limits = StateLimits()
    longest = TopicConfig("x" * TOPIC_SIZE_MAX, limits.queues_max, limits.queues_max, 7, 2**31 - 1)
    topics_max = limits.topics_max + limits.groups_max  # with dead letters
    listed = len(orjson.dumps({longest.name: longest.as_json()}))
    assert topics_max * listed < FRAME_BODY_SIZE_MAX
    assert topics_max * (4 + len(f"{longest.name} 16384 16384 7 SINGLE_TAG")) < TABLE_BYTES


def test_a_state_counts_its_queues_and_offsets() -> None:
    state = BrokerState()
    for command, queues, offsets in (
        (PutTopic.of(TopicConfig("a", 4, 2), 1), 12, 0),
        (PutTopic.of(TopicConfig("a", 2, 3), 1), 11, 0),
        (PutGroup.of(GroupConfig("g"), 1), 11, 0),
        (CommitOffset("g", "a", 0, 5), 11, 1),
        (CommitOffset("g", "a", 0, 6), 11, 1),
        (CommitOffset("g", "a", 1, 6), 11, 2),
        (DeleteTopic("a", 1), 8, 2),
        (DeleteTopic("a", 1), 8, 2),
    ):
        state.apply(command)
        assert (state.queue_count, state.offset_count) == (queues, offsets), command
        restored = BrokerState.from_bytes(state.to_bytes())
        assert (restored.queue_count, restored.offset_count) == (queues, offsets)
    state.apply(DeleteGroup("g", True, 1))
    assert state.offset_count == 0
