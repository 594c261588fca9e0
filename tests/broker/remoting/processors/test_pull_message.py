"""Pulling: the table of answers, the tag filter, the limits, and long polling."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from broker.delivery.message_reader import rows
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.remoting.protocol.frame import Frame
from broker.state.commands import Expire
from store.errors import OutOfRangeError
from store.log.entry_reader import EntryRange
from tests.broker.single_broker import (
    ADDRESS,
    SingleBroker,
    flip,
    messages,
    pull_ext,
    running_broker,
)
from tests.support.virtual_network import NetworkedLoop

FIELDS = {"suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset"}


async def sent(broker: SingleBroker, count: int, tag: str = "", size: int = 1) -> None:
    """``count`` messages in queue 0 of the topic orders."""
    if "orders" not in broker.broker.context.machine.state.topics:
        await broker.create_topic("orders")
    properties = f"TAGS\x01{tag}\x02" if tag else ""
    for _ in range(count):
        answer = await broker.send("orders", 0, b"x" * size, properties)
        assert answer.code == ResponseCode.SUCCESS


def told(answer: Frame) -> tuple[int, int, int, int]:
    """(code, next offset, min offset, max offset); the fields are always there, as strings."""
    assert answer.ext.keys() >= FIELDS
    assert all(type(value) is str for value in answer.ext.values())
    numbers = [int(str(answer.ext[name])) for name in ("nextBeginOffset", "minOffset", "maxOffset")]
    return (answer.code, numbers[0], numbers[1], numbers[2])


@pytest.mark.parametrize(
    ("offset", "answer", "remark"),
    [
        (0, (0, 3, 0, 3), "FOUND"),
        (2, (0, 3, 0, 3), "FOUND"),
        (3, (19, 3, 0, 3), "OFFSET_OVERFLOW_ONE"),
        (4, (21, 3, 0, 3), "OFFSET_OVERFLOW_BADLY"),
        (-1, (21, 0, 0, 3), "OFFSET_TOO_SMALL"),
    ],
)
async def test_a_pull_is_answered_by_where_its_offset_lies(
    broker: SingleBroker, offset: int, answer: tuple[int, int, int, int], remark: str
) -> None:
    await sent(broker, 3)
    pulled = await broker.pull("orders", 0, offset)
    assert (told(pulled), pulled.remark) == (answer, remark)


@pytest.mark.parametrize(("offset", "code"), [(0, 19), (5, 21)])
async def test_an_empty_queue_sends_whoever_asks_to_its_start(
    broker: SingleBroker, offset: int, code: int
) -> None:
    await broker.create_topic("orders")
    assert told(await broker.pull("orders", 1, offset)) == (code, 0, 0, 0)


@pytest.mark.parametrize(
    ("topic", "changed", "code", "remark"),
    [
        ("none", {}, ResponseCode.TOPIC_NOT_EXIST, "topic[none] not exist"),
        ("orders", {"queueId": "4"}, ResponseCode.SYSTEM_ERROR, "no queue 4 to read"),
        ("orders", {"queueId": "-1"}, ResponseCode.SYSTEM_ERROR, "no queue -1 to read"),
        ("hidden", {}, ResponseCode.NO_PERMISSION, "the topic hidden is not readable"),
        ("orders", {"consumerGroup": "a b"}, ResponseCode.SYSTEM_ERROR, "the group name 'a b'"),
        ("orders", {"subscription": "||"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED, "names no tag"),
        (
            "orders",
            {"expressionType": "JS"},
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            "'JS' is neither",
        ),
        (
            "orders",
            {"expressionType": "SQL92", "subscription": "a >"},
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            "character 4: it ends too early",
        ),
        ("orders", {"sysFlag": "0"}, ResponseCode.SUBSCRIPTION_NOT_EXIST, "has no subscription"),
        (
            "orders",
            {"queueOffset": "x"},
            ResponseCode.SYSTEM_ERROR,
            "queueOffset is not an integer",
        ),
    ],
)
async def test_a_pull_that_cannot_be_served_says_why(
    broker: SingleBroker, topic: str, changed: dict[str, str], code: ResponseCode, remark: str
) -> None:
    await broker.create_topic("orders")
    await broker.create_topic("hidden", perm=2)
    answer = await broker.pull(topic, 0, 0, **changed)
    assert (answer.code, remark in (answer.remark or "")) == (code, True), answer.remark
    await asyncio.sleep(1)
    assert broker.broker.context.machine.state.groups == {}


@pytest.mark.parametrize(
    ("model", "code"),
    [("BROADCASTING", ResponseCode.NO_PERMISSION), ("CLUSTERING", ResponseCode.SUCCESS)],
)
async def test_a_group_may_be_forbidden_to_broadcast(
    broker: SingleBroker, model: str, code: ResponseCode
) -> None:
    await sent(broker, 1)
    body = b'{"groupName":"readers","consumeBroadcastEnable":false}'
    await broker.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)
    member = b'{"clientID":"c","consumerDataSet":[{"groupName":"readers","messageModel":"%b"}]}'
    await broker.ask(RequestCode.HEART_BEAT, {}, member % model.encode())
    assert (await broker.pull("orders", 0, 0)).code == code


# --- limits


async def test_a_client_like_rocketmqs_gets_32_messages_at_most(broker: SingleBroker) -> None:
    await sent(broker, 40)
    answer = await broker.pull("orders", 0, 0)
    assert (len(messages(answer)), told(answer)[1]) == (32, 32)


async def test_a_client_that_asks_for_more_than_32_gets_them(broker: SingleBroker) -> None:
    await sent(broker, 40)
    assert len(messages(await broker.pull("orders", 0, 0, maxMsgNums="1024"))) == 40


async def test_an_answer_ends_before_256_kib(broker: SingleBroker) -> None:
    await sent(broker, 6, size=60_000)
    assert len(messages(await broker.pull("orders", 0, 0))) == 4


async def test_one_message_is_brought_however_large_it_is(broker: SingleBroker) -> None:
    await sent(broker, 2, size=60_000)
    answer = await broker.pull("orders", 0, 0, maxMsgBytes="100")
    assert (len(messages(answer)), told(answer)[1]) == (1, 1)


# --- tags


async def test_only_messages_with_a_wanted_tag_are_brought(broker: SingleBroker) -> None:
    for tag in ("a", "b", "c", "a", ""):
        await sent(broker, 1, tag)
    answer = await broker.pull("orders", 0, 0, subscription="a || c")
    assert [record.queue_offset for record in messages(answer)] == [0, 2, 3]
    assert told(answer) == (0, 5, 0, 5)


async def test_where_nothing_matches_the_client_goes_on_behind_it(broker: SingleBroker) -> None:
    await sent(broker, 5, "a")
    answer = await broker.pull("orders", 0, 0, subscription="b", sysFlag="6")
    assert (told(answer), answer.body) == ((20, 5, 0, 5), b"")


async def test_a_filtered_pull_stops_before_the_match_that_it_cannot_bring(
    broker: SingleBroker,
) -> None:
    for tag in ("b", "a", "b", "a", "b", "a"):
        await sent(broker, 1, tag)
    answer = await broker.pull("orders", 0, 0, subscription="a", maxMsgNums="2")
    assert [record.queue_offset for record in messages(answer)] == [1, 3]
    assert told(answer)[1] == 5


async def test_without_a_subscription_that_of_the_heartbeat_counts(broker: SingleBroker) -> None:
    await sent(broker, 1, "a")
    await sent(broker, 1, "b")
    heartbeat = (
        b'{"clientID":"c","consumerDataSet":[{"groupName":"readers","subscriptionDataSet":['
        b'{"topic":"orders","subString":"b","codeSet":[0,0],"subVersion":"7"}]}]}'
    )
    await broker.ask(RequestCode.HEART_BEAT, {}, heartbeat)
    answer = await broker.pull("orders", 0, 0, sysFlag="0", subVersion="7")
    assert [record.queue_offset for record in messages(answer)] == [1]
    newer = await broker.pull("orders", 0, 0, sysFlag="0", subVersion="8")
    assert newer.code == ResponseCode.SUBSCRIPTION_NOT_LATEST


# --- long polling


def held_pull(broker: SingleBroker, offset: int, **changed: str) -> asyncio.Task[Frame]:
    return asyncio.ensure_future(broker.pull("orders", 0, offset, sysFlag="6", **changed))


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_held_pull_is_answered_by_the_next_message(broker: SingleBroker) -> None:
    await sent(broker, 1)
    waiting = held_pull(broker, 1)
    await settled()
    assert not waiting.done()
    asked_at = broker.loop.time()
    await sent(broker, 1)
    assert told(await waiting) == (0, 2, 0, 2)
    assert broker.loop.time() - asked_at < 0.1


async def test_a_message_of_another_tag_or_queue_does_not_end_the_wait(
    broker: SingleBroker,
) -> None:
    await broker.create_topic("orders")
    waiting = held_pull(broker, 0, subscription="b")
    await settled()
    await sent(broker, 1, "a")
    await broker.send("orders", 1, b"x", "TAGS\x01b\x02")
    await settled()
    assert not waiting.done()
    await sent(broker, 1, "b")
    assert [record.queue_offset for record in messages(await waiting)] == [1]


async def test_a_held_pull_is_told_after_its_time_that_there_is_nothing(
    broker: SingleBroker,
) -> None:
    await sent(broker, 1)
    asked_at = broker.loop.time()
    answer = await held_pull(broker, 1, suspendTimeoutMillis="15000")
    assert told(answer) == (19, 1, 0, 1)
    assert broker.loop.time() - asked_at == pytest.approx(15, abs=0.1)
    assert len(broker.broker.context.delivery.long_polling) == 0


async def test_a_pull_that_must_not_be_held_is_answered_at_once(broker: SingleBroker) -> None:
    await sent(broker, 1)
    asked_at = broker.loop.time()
    assert told(await broker.pull("orders", 0, 1))[0] == ResponseCode.PULL_NOT_FOUND
    assert broker.loop.time() == asked_at


async def test_with_its_connection_a_held_pull_is_forgotten(broker: SingleBroker) -> None:
    await sent(broker, 1)
    waiting = held_pull(broker, 1)
    await settled()
    assert len(broker.broker.context.delivery.long_polling) == 1
    broker.server.connections[0].abort()
    await asyncio.gather(waiting, return_exceptions=True)
    assert len(broker.broker.context.delivery.long_polling) == 0


# --- what else a pull does


async def test_the_offset_that_a_pull_carries_is_committed_within_a_second(
    broker: SingleBroker,
) -> None:
    await sent(broker, 3)
    await broker.pull("orders", 0, 3, sysFlag="5", commitOffset="3")
    await asyncio.sleep(1.1)
    assert broker.broker.context.machine.state.offset("readers", "orders", 0) == 3


async def test_a_negative_carried_offset_is_no_offset(broker: SingleBroker) -> None:
    await sent(broker, 3)
    await broker.pull("orders", 0, 3, sysFlag="5", commitOffset="-1")
    await asyncio.sleep(1.1)
    assert broker.broker.context.machine.state.offset("readers", "orders", 0) is None


async def test_a_pull_without_a_group_commits_nothing(broker: SingleBroker) -> None:
    await sent(broker, 3)
    await broker.pull("orders", 0, 3, sysFlag="5", commitOffset="3", consumerGroup="")
    await asyncio.sleep(1.1)
    assert broker.broker.context.machine.state.offset_count == 0


async def test_messages_that_are_no_longer_in_memory_come_from_the_log(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    async with running_broker(loop, tmp_path) as broker:
        await sent(broker, 10)
    async with running_broker(loop, tmp_path) as broker:
        assert len(messages(await broker.pull("orders", 0, 0))) == 10


async def test_the_loop_goes_on_while_a_pull_waits_for_the_disk(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    async with running_broker(loop, tmp_path) as broker:
        await sent(broker, 1)
    async with running_broker(loop, tmp_path) as broker:
        broker.read_executor.hold()
        waiting = held_pull(broker, 0)
        assert (await broker.send("orders", 1, b"x")).code == ResponseCode.SUCCESS
        assert not waiting.done()
        broker.read_executor.release()
        assert len(messages(await waiting)) == 1


async def test_a_pull_that_expiry_overtakes_is_sent_to_where_the_queue_begins_now(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    async with running_broker(loop, tmp_path) as broker:
        await sent(broker, 3)
    async with running_broker(loop, tmp_path) as broker:
        broker.read_executor.hold()
        waiting = held_pull(broker, 0)
        await settled()
        context = broker.broker.context
        context.batcher.add_command(Expire(context.machine.applied_end))
        await settled()
        context.node.store.read_range = expired_read  # type: ignore[method-assign]  # a double
        broker.read_executor.release()
        assert told(await waiting) == (21, 3, 3, 3)


async def test_what_this_nodes_disk_does_not_have_yet_is_never_skipped(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    async with running_broker(loop, tmp_path) as broker:
        await sent(broker, 3)
    async with running_broker(loop, tmp_path) as broker:
        broker.broker.context.node.store.read_range = expired_read  # type: ignore[method-assign]  # a double
        answer = await broker.pull("orders", 0, 0)
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "not there")
        assert answer.ext == {}


def expired_read(first_index: int, last_index: int, max_bytes: int) -> EntryRange:
    raise OutOfRangeError("not there")


@pytest.mark.parametrize("byte", [20, 91, -3], ids=["queue offset", "body", "properties"])
async def test_a_record_that_rotted_is_given_to_nobody(
    loop: NetworkedLoop, tmp_path: Path, byte: int
) -> None:
    async with running_broker(loop, tmp_path) as broker:
        await sent(broker, 3)
    async with running_broker(loop, tmp_path) as broker:
        context = broker.broker.context
        queue = context.machine.queue("orders", 0)
        assert queue is not None
        ((position, size, _code),) = rows(queue.read(1, 1))
        flip(tmp_path / f"commitlog/{0:020d}", position + byte % size)
        answer = await broker.pull("orders", 0, 0)
        assert (answer.code, answer.ext, answer.body) == (ResponseCode.SYSTEM_ERROR, {}, b"")
        assert "CRC" in str(answer.remark)
        await settled()
        assert len(context.node.scrubber.damage) == 1


async def test_one_way_pulls_are_not_answered(broker: SingleBroker) -> None:
    await sent(broker, 1)
    broker.client.push(ADDRESS, RequestCode.PULL_MESSAGE, pull_ext("orders", 0, 0))
    await settled()
    assert (await broker.pull("orders", 0, 0)).code == ResponseCode.SUCCESS
