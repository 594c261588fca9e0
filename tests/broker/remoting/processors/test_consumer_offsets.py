"""Offsets: what groups have consumed, and what queues hold."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from broker.http.json_documents import groups_document
from broker.limits import STATE
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.remoting.protocol.errors import RequestTimeoutError
from broker.remoting.protocol.frame import Frame
from broker.state.commands import CommitOffset
from tests.broker.single_broker import ADDRESS, NOW_MS, SingleBroker, running_broker
from tests.support.virtual_network import NetworkedLoop

PLACE = {"consumerGroup": "readers", "topic": "orders", "queueId": "0"}


async def committed(broker: SingleBroker, offset: object, **changed: Any) -> Frame:
    ext = PLACE | {"commitOffset": offset} | changed
    return await broker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, ext)


async def stored(broker: SingleBroker, count: int = 8) -> None:
    """So many messages in queue 0 of the topic orders."""
    await broker.create_topic("orders")
    for _ in range(count):
        await broker.send("orders", 0, b"x")


async def queried(broker: SingleBroker, **changed: Any) -> Frame:
    return await broker.ask(RequestCode.QUERY_CONSUMER_OFFSET, PLACE | changed, seconds=3)


async def queue_number(broker: SingleBroker, code: int, **ext: Any) -> tuple[int, Any]:
    """The code and the one field of an answer to 29, 30, 31 or 32."""
    answer = await broker.ask(code, {"topic": "orders", "queueId": "0"} | ext)
    return answer.code, next(iter(answer.ext.values()), answer.remark)


async def test_a_committed_offset_is_what_the_group_is_told(broker: SingleBroker) -> None:
    await stored(broker)
    assert (await committed(broker, "7")).code == ResponseCode.SUCCESS
    assert (await queried(broker)).ext == {"offset": "7"}


async def test_a_group_that_commits_exists(broker: SingleBroker) -> None:
    await stored(broker)
    await committed(broker, "7")
    state = broker.broker.context.machine.state
    assert state.groups.keys() == {"readers"}
    assert (await committed(broker, "0", topic="%RETRY%readers")).code == ResponseCode.SUCCESS


async def test_the_offset_of_a_topic_that_nobody_created_is_refused(broker: SingleBroker) -> None:
    answer = await committed(broker, "0", topic="bills")
    assert (answer.code, answer.remark) == (17, "topic[bills] not exist, apply first please!")
    assert broker.broker.context.machine.state.offsets == {}


@pytest.mark.parametrize("offset", [9, 2**63 - 1])
async def test_an_offset_behind_the_end_is_refused_and_a_pull_passes_it_over(
    broker: SingleBroker, offset: int
) -> None:
    await stored(broker)
    answer = await committed(broker, offset)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == f"the offset {offset} lies behind queue 0 of orders, which ends at 8"
    ext = PLACE | {"commitOffset": str(offset)}
    broker.client.push(ADDRESS, RequestCode.UPDATE_CONSUMER_OFFSET, ext)
    found = await broker.pull("orders", 0, 7, sysFlag="5", commitOffset=str(offset))
    assert found.code == ResponseCode.SUCCESS
    await asyncio.sleep(5)
    assert broker.broker.context.machine.state.offsets == {}
    await broker.pull("orders", 0, 7, sysFlag="5", commitOffset="7")
    await asyncio.sleep(5)
    assert (await queried(broker)).ext == {"offset": "7"}
    assert (await committed(broker, 8)).code == ResponseCode.SUCCESS


async def test_a_pull_may_commit_the_end_of_what_is_proposed(broker: SingleBroker) -> None:
    """A follower may have applied, and given out, what the leader has yet to apply."""

    await stored(broker)
    broker.log_executor.hold()
    sending = broker.loop.create_task(broker.send("orders", 0, b"x"))
    await asyncio.sleep(0.1)
    context = broker.broker.context
    assert context.machine.end_offset("orders", 0) == 8
    assert context.batcher.end_offset("orders", 0) == 9
    committing = broker.loop.create_task(committed(broker, "9"))
    await asyncio.sleep(0.1)
    broker.log_executor.release()
    assert ((await sending).code, (await committing).code) == (0, 0)


async def test_offsets_have_a_limit_and_known_ones_move_on(
    loop: NetworkedLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = STATE._replace(offsets_max=1)
    monkeypatch.setattr("broker.delivery.offset_quota.STATE", few)

    async with running_broker(loop, tmp_path) as broker:
        await stored(broker)
        answers = await asyncio.gather(committed(broker, "1"), committed(broker, "0", queueId="2"))
        assert [answer.code for answer in answers] == [0, ResponseCode.SYSTEM_ERROR]
        refused = await committed(broker, "0", queueId="1")
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert "there are 1 offsets of groups, at most 1 are allowed" in (refused.remark or "")
        await broker.pull("orders", 1, 0, sysFlag="5", commitOffset="0")
        await broker.pull("orders", 0, 2, sysFlag="5", commitOffset="2")
        await asyncio.sleep(5)
        assert broker.broker.context.machine.state.offsets == {("readers", "orders"): {0: 2}}


async def test_offsets_that_cannot_be_in_an_older_state_are_shown_as_the_end(
    broker: SingleBroker,
) -> None:
    await stored(broker)
    context = broker.broker.context
    for queue_id in range(3):
        context.batcher.add_command(CommitOffset("readers", "orders", queue_id, 2**63 - 1))
    context.batcher.add_command(CommitOffset("readers", "gone", 0, 2**63 - 1))
    await asyncio.sleep(1)
    shown = orjson.loads(orjson.dumps(await groups_document(context)))["groups"]
    (orders,) = [group for group in shown if group["topic"] == "orders"]
    assert (orders["acknowledged"], orders["lag"]) == (8, 0)


async def test_a_leader_that_has_just_begun_takes_the_offsets_of_what_was_stored_before(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    async with running_broker(loop, tmp_path) as broker:
        await stored(broker)
    async with running_broker(loop, tmp_path) as broker:
        assert (await committed(broker, "8")).code == ResponseCode.SUCCESS
        assert (await committed(broker, "9")).code == ResponseCode.SYSTEM_ERROR


async def test_a_group_that_was_away_may_commit_what_has_expired(broker: SingleBroker) -> None:
    await stored(broker)
    await broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"})
    await broker.create_topic("orders")
    assert (await committed(broker, "3")).code == ResponseCode.SUCCESS


async def test_minus_one_is_taken_without_hiding_what_was_committed(broker: SingleBroker) -> None:
    await stored(broker)
    assert (await committed(broker, -1)).code == ResponseCode.SUCCESS
    assert (await queried(broker)).ext == {"offset": "0"}
    assert broker.broker.context.machine.state.offsets == {}
    await committed(broker, 5)
    assert (await committed(broker, -1)).code == ResponseCode.SUCCESS
    assert (await queried(broker)).ext == {"offset": "5"}


async def test_a_new_group_begins_at_0_where_the_queue_does(broker: SingleBroker) -> None:
    await broker.create_topic("orders")
    answer = await queried(broker)
    assert (answer.code, answer.ext) == (ResponseCode.SUCCESS, {"offset": "0"})


async def test_a_new_group_is_told_nothing_where_the_queue_has_lost_its_beginning(
    broker: SingleBroker,
) -> None:
    await broker.create_topic("orders")
    await broker.send("orders", 0, b"gone")
    await broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"})
    await broker.create_topic("orders")
    answer = await queried(broker)
    assert (answer.code, answer.ext) == (ResponseCode.QUERY_NOT_FOUND, {})


async def test_a_new_group_is_told_nothing_where_the_beginning_has_left_the_memory(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    async with running_broker(loop, tmp_path, follower_reads_percent=0) as broker:
        await broker.create_topic("orders")
        assert (await queried(broker)).code == ResponseCode.SUCCESS
        await broker.send("orders", 0, b"old")
        assert (await queried(broker)).code == ResponseCode.QUERY_NOT_FOUND


async def test_a_one_way_commit_that_changes_nothing_makes_no_entry(broker: SingleBroker) -> None:
    await stored(broker)
    node = broker.broker.context.node
    for offset, entries in (("7", 1), ("7", 0), ("8", 1)):
        before = node.applied_index
        ext = PLACE | {"commitOffset": offset}
        broker.client.push(ADDRESS, RequestCode.UPDATE_CONSUMER_OFFSET, ext)
        await asyncio.sleep(0.1)
        assert node.applied_index - before == entries
    assert (await queried(broker)).ext == {"offset": "8"}


@pytest.mark.parametrize(
    ("changed", "remark"),
    [
        ({"commitOffset": "x"}, "field commitOffset is not an integer: 'x'"),
        ({"queueId": "-1"}, "field queueId is not between 0"),
        ({"consumerGroup": "a b"}, "the group name 'a b'"),
        ({"topic": ""}, "the topic has no name"),
    ],
)
async def test_a_commit_that_makes_no_sense_is_refused(
    broker: SingleBroker, changed: dict[str, str], remark: str
) -> None:
    answer = await committed(broker, "1", **changed)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert remark in (answer.remark or "")


async def test_a_node_that_does_not_lead_refuses_commits_and_keeps_silent_when_asked(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    async with running_broker(loop, tmp_path, serving=False) as broker:
        assert (await committed(broker, "1")).code == ResponseCode.SERVICE_NOT_AVAILABLE
        broker.broker.context.batcher.close()
        with pytest.raises(RequestTimeoutError):
            await queried(broker)


async def test_an_offset_is_told_without_asking_the_disk(broker: SingleBroker) -> None:
    await stored(broker)
    await committed(broker, "7")
    broker.log_executor.hold()
    assert (await queried(broker)).ext == {"offset": "7"}
    broker.log_executor.release()


async def test_a_node_without_a_leader_tells_queue_offsets_only_where_stale_ones_will_do(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    async with running_broker(loop, tmp_path / "a", serving=False) as broker:
        code, remark = await queue_number(broker, RequestCode.GET_MAX_OFFSET)
        assert code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "no leader confirmed in time" in remark
    async with running_broker(loop, tmp_path / "b", serving=False, reads="stale") as broker:
        code, _ = await queue_number(broker, RequestCode.GET_MAX_OFFSET)
        assert code == ResponseCode.TOPIC_NOT_EXIST


# --- queues


async def test_min_and_max_bound_the_queue(broker: SingleBroker) -> None:
    await broker.create_topic("orders")
    for code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET):
        assert await queue_number(broker, code) == (0, "0")
    await broker.send("orders", 0, b"x")
    await broker.send("orders", 0, b"x")
    assert await queue_number(broker, RequestCode.GET_MIN_OFFSET) == (0, "0")
    assert await queue_number(broker, RequestCode.GET_MAX_OFFSET) == (0, "2")


async def test_an_unknown_topic_or_queue_is_refused(broker: SingleBroker) -> None:
    code, remark = await queue_number(broker, RequestCode.GET_MAX_OFFSET)
    assert (code, remark) == (17, "topic[orders] not exist, apply first please!")
    await broker.create_topic("orders")
    code, remark = await queue_number(broker, RequestCode.GET_MIN_OFFSET, queueId="9")
    assert (code, remark) == (1, "the topic orders has no queue 9, its queues are 0 to 3")


async def test_a_queue_is_searched_by_time_as_rocketmq_4_9_does(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    async with running_broker(loop, tmp_path) as broker:
        await broker.create_topic("orders")
        for seconds in (0, 10, 10, 20):
            broker.now_ms = NOW_MS + seconds * 1000
            await broker.send("orders", 0, b"x")
    async with running_broker(loop, tmp_path) as broker:
        for seconds, offset in ((-5, 0), (0, 0), (4, 0), (5, 0), (6, 1), (10, 1), (16, 3), (99, 3)):
            found = await queue_number(
                broker,
                RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
                timestamp=str(NOW_MS + seconds * 1000),
            )
            assert (seconds, found) == (seconds, (0, str(offset)))
        earliest = await queue_number(broker, RequestCode.GET_EARLIEST_MSG_STORETIME)
        assert earliest == (0, str(NOW_MS))


async def test_an_empty_queue_has_no_time(broker: SingleBroker) -> None:
    await broker.create_topic("orders")
    assert await queue_number(broker, RequestCode.GET_EARLIEST_MSG_STORETIME) == (0, "-1")
    found = await queue_number(broker, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, timestamp="5")
    assert found == (0, "0")
