"""Retention by topic: which messages consumers get no more, who decides it, and what it leaves."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from broker.maintenance.retention import CHECK_SECONDS
from broker.remoting.protocol.codes import MISSING, RequestCode, ResponseCode
from broker.remoting.protocol.frame import Frame
from broker.state.commands import Trim
from store.io.os_filesystem import OsFileSystem
from store.log.retention_policy import RetentionPolicy
from store.message.record import MessageRecord
from store.verify import verify_replica
from tests.broker.made_up_records import made_up_record, put_into_a_body
from tests.broker.maintenance.test_retention import bounds
from tests.broker.single_broker import NOW_MS, SingleBroker, messages, running_broker
from tests.support.virtual_network import NetworkedLoop

HOUR_MS = 3_600_000
MINUTE_MS = 60_000
DAY: dict[str, Any] = {"retention": RetentionPolicy(age_ms_max=24 * HOUR_MS, log_bytes_max=None)}


@pytest.fixture
def broker_settings() -> dict[str, Any]:
    return DAY


async def create(broker: SingleBroker, attributes: str, name: str = "orders") -> None:
    await broker.create_topic(name, attributes=attributes)


async def refusal(broker: SingleBroker, attributes: str) -> str:
    fields = {"topic": "orders", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}
    answer = await broker.ask(
        RequestCode.UPDATE_AND_CREATE_TOPIC, {**fields, "attributes": attributes}
    )
    assert answer.code != ResponseCode.SUCCESS
    return str(answer.remark)


async def send_each_minute(broker: SingleBroker, minutes: int, topic: str = "orders") -> None:
    """One message each minute, the first at once."""
    for minute in range(minutes):
        broker.now_ms = NOW_MS + minute * MINUTE_MS
        await broker.send(topic, 0, b"%d" % minute)


async def looked(broker: SingleBroker) -> None:
    """Once its retention has followed the clock, which the tests set ahead."""
    await asyncio.sleep((broker.now_ms - NOW_MS) / 2000 + CHECK_SECONDS + 1)


async def test_consumers_get_no_message_that_is_older_than_its_topic_wants(
    broker: SingleBroker,
) -> None:
    await create(broker, "+retention.ms=120000")
    await create(broker, "", name="bills")
    await send_each_minute(broker, 6)
    await broker.send("bills", 0, b"kept")
    await looked(broker)
    assert await bounds(broker) == (3, 6)
    moved = await broker.pull("orders", 0, 0)
    assert (moved.code, moved.ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "3")
    assert [each.body for each in messages(await broker.pull("orders", 0, 3))] == [
        b"3",
        b"4",
        b"5",
    ]
    assert [each.body for each in messages(await broker.pull("bills", 0, 0))] == [b"kept"]


async def test_all_of_a_queue_may_go_and_it_goes_on_where_it_ended(broker: SingleBroker) -> None:
    await create(broker, "+retention.ms=120000")
    await send_each_minute(broker, 3)
    broker.now_ms += 3 * MINUTE_MS
    await looked(broker)
    assert await bounds(broker) == (3, 3)
    await broker.send("orders", 0, b"next")
    assert messages(await broker.pull("orders", 0, 3))[0].queue_offset == 3


async def test_without_a_retention_or_once_it_is_unset_nothing_more_goes(
    broker: SingleBroker,
) -> None:
    await create(broker, "+retention.ms=120000")
    await send_each_minute(broker, 4)
    await looked(broker)
    assert await bounds(broker) == (1, 4)
    await create(broker, "-retention.ms")
    broker.now_ms += 10 * MINUTE_MS
    await looked(broker)
    assert await bounds(broker) == (1, 4)


@pytest.mark.parametrize("on_disk", [False, True], ids=["rows in memory", "rows on disk"])
async def test_a_message_that_was_trimmed_can_still_be_sent_back_and_looked_up(
    loop: NetworkedLoop, tmp_path: Path, on_disk: bool
) -> None:
    """A consumer may work on it for longer than the topic keeps it."""
    async with running_broker(loop, tmp_path, **DAY) as broker:
        await create(broker, "+retention.ms=120000")
        await send_each_minute(broker, 6)
        taken = messages(await broker.pull("orders", 0, 0))[0]
        await looked(broker)
        if not on_disk:
            await can_be_sent_back(broker, taken)
    if on_disk:
        async with running_broker(loop, tmp_path, **DAY) as broker:
            await can_be_sent_back(broker, taken)


async def can_be_sent_back(broker: SingleBroker, trimmed: MessageRecord) -> None:
    """Until its topic is deleted."""
    assert await bounds(broker) == (3, 6)
    assert messages(await viewed(broker, trimmed.position)) == [trimmed]
    assert (await sent_back(broker, trimmed)).code == ResponseCode.SUCCESS
    await broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"})
    assert (await viewed(broker, trimmed.position)).ext[MISSING] == "true"
    assert "no queue has a message" in str((await sent_back(broker, trimmed)).remark)


async def viewed(broker: SingleBroker, position: int) -> Frame:
    return await broker.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(position)})


async def sent_back(broker: SingleBroker, record: MessageRecord) -> Frame:
    named = {"offset": str(record.position), "group": "readers", "originTopic": record.topic}
    asked = {"delayLevel": "0", "maxReconsumeTimes": "16"}
    return await broker.ask(RequestCode.CONSUMER_SEND_MSG_BACK, named | asked)


async def test_what_the_log_keeps_no_longer_is_not_looked_up(broker: SingleBroker) -> None:
    await create(broker, "+retention.ms=120000")
    await send_each_minute(broker, 6)
    first, second, *_ = messages(await broker.pull("orders", 0, 0))
    await looked(broker)
    with patch.object(broker.broker.context.machine, "expired_position", second.position):
        assert (await viewed(broker, first.position)).ext[MISSING] == "true"
        assert messages(await viewed(broker, second.position)) == [second]


async def test_a_made_up_record_with_the_offset_of_a_trimmed_message_is_no_message(
    broker: SingleBroker,
) -> None:
    await create(broker, "+retention.ms=120000")
    await send_each_minute(broker, 6)
    position = await put_into_a_body(
        partial(broker.send, "orders", 0), lambda at: made_up_record(at, "orders", offset=1)
    )
    await looked(broker)
    assert (await bounds(broker))[0] > 1
    assert (await viewed(broker, position)).ext[MISSING] == "true"


async def test_a_look_under_way_heeds_a_change_that_is_acknowledged_meanwhile(
    broker: SingleBroker,
) -> None:
    await create(broker, "+retention.ms=120000")
    await send_each_minute(broker, 4)
    retention = broker.broker.context.topic_retention
    find = retention._first_from

    async def change_first(*given: Any) -> int:
        await create(broker, "-retention.ms")
        return await find(*given)

    with patch.object(retention, "_first_from", side_effect=change_first) as found:
        await looked(broker)
        found.assert_called_once()
    assert await bounds(broker) == (0, 4)


async def test_a_look_under_way_takes_nothing_of_a_topic_that_was_made_again(
    broker: SingleBroker,
) -> None:
    """The offset that it found belongs to the deleted one, whose retention was the same."""
    await create(broker, "+retention.ms=120000")
    await send_each_minute(broker, 4)
    retention = broker.broker.context.topic_retention
    find = retention._first_from

    async def make_again(*given: Any) -> int:
        offset = await find(*given)
        answer = await broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"})
        assert answer.code == ResponseCode.SUCCESS
        await create(broker, "+retention.ms=120000")
        await broker.send("orders", 0, b"new")
        return offset

    with patch.object(retention, "_first_from", side_effect=make_again) as found:
        await looked(broker)
        found.assert_called_once()
    assert await bounds(broker) == (4, 5)
    assert [each.body for each in messages(await broker.pull("orders", 0, 4))] == [b"new"]


async def test_a_clock_that_is_far_ahead_for_a_while_takes_nothing(broker: SingleBroker) -> None:
    await create(broker, "+retention.ms=120000")
    await send_each_minute(broker, 2)
    broker.now_ms += 48 * HOUR_MS
    await asyncio.sleep(2 * CHECK_SECONDS)
    broker.now_ms -= 48 * HOUR_MS
    await looked(broker)
    assert await bounds(broker) == (0, 2)


async def test_a_restarted_broker_begins_its_queues_at_the_same_offsets(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    async with running_broker(loop, tmp_path, **DAY) as broker:
        await create(broker, "+retention.ms=120000")
        await send_each_minute(broker, 6)
        await looked(broker)
    async with running_broker(loop, tmp_path, **DAY) as broker:
        assert await bounds(broker) == (3, 6)


@pytest.mark.parametrize("checkpoint_before", [True, False])
async def test_verify_finds_nothing_wrong_in_what_it_leaves(
    loop: NetworkedLoop, tmp_path: Path, checkpoint_before: bool
) -> None:
    """Whether the newest checkpoint covers the trim or not."""
    async with running_broker(loop, tmp_path, checkpoint_seconds=1, **DAY) as broker:
        await create(broker, "+retention.ms=120000")
        await send_each_minute(broker, 6)
        if checkpoint_before:
            await asyncio.sleep(5)
        await looked(broker)
        await broker.send("orders", 0, b"more")
        assert await bounds(broker) == (3, 7)
    report = verify_replica(OsFileSystem(), str(tmp_path))
    assert report.findings == []


async def test_a_queue_never_begins_earlier_again_nor_behind_its_end(broker: SingleBroker) -> None:
    await create(broker, "")
    await send_each_minute(broker, 4)
    batcher = broker.broker.context.batcher
    for offset, begins in ((2, 2), (1, 2), (99, 4)):
        batcher.add_command(Trim("orders", 0, offset))
        batcher.add_command(Trim("unknown", 0, offset))
        await asyncio.sleep(0.1)
        assert await bounds(broker) == (begins, 4)


async def test_what_it_cannot_be_is_refused_with_the_reason(broker: SingleBroker) -> None:
    await create(broker, "")
    assert "1000 ms or longer, not for 10 ms" in await refusal(broker, "+retention.ms=10")
    longer = await refusal(broker, f"+retention.ms={25 * HOUR_MS}")
    assert "the log of all topics is kept for 86400000 ms" in longer
    assert "number of milliseconds, not 'a day'" in await refusal(broker, "+retention.ms=a day")
    assert "'+cleanup=no'" in await refusal(broker, "+cleanup=no")
    assert broker.broker.context.machine.state.topics["orders"].retention_ms == 0


async def test_nothing_is_written_that_a_member_may_not_know(broker: SingleBroker) -> None:
    await create(broker, "+retention.ms=120000")
    await send_each_minute(broker, 4)
    features = broker.broker.context.node.features
    with patch.object(type(features), "known_by_all", return_value=False):
        assert "earlier program" in await refusal(broker, "+retention.ms=60000")
        await looked(broker)
        assert await bounds(broker) == (0, 4)
    await looked(broker)
    assert await bounds(broker) == (1, 4)


async def test_a_queue_is_searched_only_when_its_first_message_is_older_by_a_twentieth(
    broker: SingleBroker,
) -> None:
    await create(broker, "+retention.ms=120000")
    await send_each_minute(broker, 2)
    retention = broker.broker.context.topic_retention
    read = patch.object(type(retention), "_store_time", autospec=True, side_effect=AssertionError)
    broker.now_ms = NOW_MS + 2 * MINUTE_MS + 1
    await looked(broker)
    assert await bounds(broker) == (0, 2)
    with read as never:
        broker.now_ms = NOW_MS + 2 * MINUTE_MS + MINUTE_MS // 10 - 1000
        await looked(broker)
        never.assert_not_called()
    broker.now_ms = NOW_MS + 2 * MINUTE_MS + MINUTE_MS // 10 + 1
    await looked(broker)
    assert await bounds(broker) == (1, 2)
