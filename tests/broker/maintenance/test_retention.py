"""Retention: what is given up, where queues begin then, and that it stays so."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker.maintenance.retention import CHECK_SECONDS
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.state.commands import Expire
from dledger.errors import ProposeError
from dledger.wire.service_messages import FetchRequest
from store.io.disk_watermarks import DiskWatermarks
from store.io.os_filesystem import OsFileSystem
from store.log.entry_row import ROW_SIZE
from store.log.retention_policy import RetentionPolicy
from tests.broker.single_broker import NOW_MS, SingleBroker, flip, messages, running_broker
from tests.support.virtual_network import NetworkedLoop

SEGMENT = 64 << 10
HOUR_MS = 3_600_000
BY_SIZE = RetentionPolicy(age_ms_max=None, log_bytes_max=2 * SEGMENT)
AGE_MS = 600_000
BY_AGE = RetentionPolicy(age_ms_max=AGE_MS, log_bytes_max=None)
FOLLOWED_SECONDS = AGE_MS / 2000 + 1
"""In so many seconds retention has followed a clock that is set ahead by the age."""
SETTINGS: dict[str, Any] = {"segment_size": SEGMENT, "max_message_size": 16 << 10}


async def fill(broker: SingleBroker, count: int) -> None:
    """Messages of 8 KiB in queue 0; checkpoints follow, without which nothing can be removed."""
    for _ in range(count):
        assert (await broker.send("orders", 0, b"x" * 8000)).code == ResponseCode.SUCCESS
    for _ in range(3):
        await asyncio.sleep(31)
        await broker.send("orders", 1, b"x")


async def bounds(broker: SingleBroker) -> tuple[int, int]:
    numbers = []
    for code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET):
        answer = await broker.ask(code, {"topic": "orders", "queueId": "0"})
        numbers.append(int(str(answer.ext["offset"])))
    return numbers[0], numbers[1]


async def test_a_log_that_grew_too_large_loses_its_oldest_segments(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    async with running_broker(loop, tmp_path, retention=BY_SIZE, **SETTINGS) as broker:
        await broker.create_topic("orders")
        await fill(broker, 40)
        first, end = await bounds(broker)
        assert 0 < first < end == 40
        spans = broker.broker.context.node.store.segments()
        assert spans[-1].end - spans[0].start <= 3 * SEGMENT
        moved = await broker.pull("orders", 0, 0)
        assert (moved.code, moved.ext["nextBeginOffset"]) == (
            ResponseCode.PULL_OFFSET_MOVED,
            str(first),
        )
        kept = messages(await broker.pull("orders", 0, first))
        assert kept[0].queue_offset == first
    async with running_broker(loop, tmp_path, **SETTINGS) as broker:
        first, end = await bounds(broker)
        assert 0 < first < end == 40
        assert messages(await broker.pull("orders", 0, first))[0].queue_offset == first


async def test_segments_go_when_their_newest_message_is_old_enough(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    async with running_broker(loop, tmp_path, retention=BY_AGE, **SETTINGS) as broker:
        await broker.create_topic("orders")
        await fill(broker, 20)
        assert (await bounds(broker))[0] == 0
        broker.now_ms = NOW_MS + AGE_MS + 1
        await asyncio.sleep(FOLLOWED_SECONDS + CHECK_SECONDS + 1)
        first, end = await bounds(broker)
        assert 0 < first < end


async def test_the_times_of_segments_survive_a_restart(loop: NetworkedLoop, tmp_path: Path) -> None:
    async with running_broker(loop, tmp_path, retention=BY_AGE, **SETTINGS) as broker:
        await broker.create_topic("orders")
        await fill(broker, 20)
    async with running_broker(loop, tmp_path, retention=BY_AGE, **SETTINGS) as broker:
        broker.now_ms = NOW_MS + AGE_MS + 1
        await asyncio.sleep(FOLLOWED_SECONDS + CHECK_SECONDS + 1)
        assert (await bounds(broker))[0] > 0


async def test_store_times_that_are_ahead_stop_nothing_for_longer_than_the_age(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    """A leader's clock was a year ahead for a moment, and the first segment holds a message of it.

    All later messages have times behind that one, too. No segment goes before its time.
    """
    async with running_broker(
        loop, tmp_path, retention=BY_AGE, clock_runs=True, **SETTINGS
    ) as broker:
        await broker.create_topic("orders")
        broker.now_ms += 365 * 24 * HOUR_MS
        await broker.send("orders", 0, b"from next year")
        broker.now_ms -= 365 * 24 * HOUR_MS
        await fill(broker, 20)
        newest = broker.broker.context.node.store.segments()[-1].start
        assert broker.broker.context.machine.segment_times[newest] > broker.now_ms + HOUR_MS
        await asyncio.sleep(AGE_MS / 1000 - 100)
        assert (await bounds(broker))[0] == 0
        await asyncio.sleep(100 + CHECK_SECONDS)
        first, end = await bounds(broker)
        assert 0 < first < end
        assert broker.broker.context.node.store.segments()[0].start == newest


async def test_the_age_of_a_closed_segment_begins_when_its_last_entry_is_applied(
    loop: NetworkedLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before that another leader may replace it by younger entries."""
    async with running_broker(loop, tmp_path, retention=BY_AGE, **SETTINGS) as broker:
        await broker.create_topic("orders")
        await fill(broker, 20)
        retention = broker.broker._retention
        retention._closed_at.clear()
        machine = broker.broker.context.machine
        for applied, closed in ((SEGMENT - 1, []), (2 * SEGMENT, [0, SEGMENT])):
            monkeypatch.setattr(machine, "applied_end", applied)
            retention._note_closed()
            assert [*retention._closed_at] == closed


async def test_a_log_within_its_bounds_is_left_alone(loop: NetworkedLoop, tmp_path: Path) -> None:
    async with running_broker(loop, tmp_path, retention=BY_SIZE, **SETTINGS) as broker:
        await broker.create_topic("orders")
        await fill(broker, 5)
        index = broker.broker.context.node.applied_index
        await asyncio.sleep(5 * CHECK_SECONDS)
        assert broker.broker.context.node.applied_index == index


class FillingDisk(OsFileSystem):
    """A disk that others fill as well."""

    used_percent = 0

    def total_bytes(self, path: str) -> int:
        return 100 << 30

    def free_bytes(self, path: str) -> int:
        return (100 - self.used_percent) << 30


@pytest.mark.parametrize(("used_percent", "goes"), [(84, False), (86, True)])
async def test_messages_go_before_their_time_only_where_the_disk_is_nearly_full(
    loop: NetworkedLoop,
    tmp_path: Path,
    used_percent: int,
    goes: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = FillingDisk()

    marks = DiskWatermarks(enough_bytes=1 << 40)
    policy = RetentionPolicy(age_ms_max=HOUR_MS, log_bytes_max=None, watermarks=marks)
    async with running_broker(loop, tmp_path, fs=disk, retention=policy, **SETTINGS) as broker:
        await broker.create_topic("orders")
        await fill(broker, 20)
        disk.used_percent = used_percent
        await asyncio.sleep(2 * CHECK_SECONDS)
        assert ((await bounds(broker))[0] > 0) is goes
    assert ("the disk is 86.0 % full: expiring the log" in caplog.text) is goes


async def test_a_message_that_still_waits_keeps_the_log_behind_it(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    async with running_broker(
        loop, tmp_path, retention=BY_SIZE, clock_runs=True, **SETTINGS
    ) as broker:
        await broker.create_topic("orders")
        await fill(broker, 20)
        assert (await broker.send("orders", 2, b"later", "DELAY\x0118\x02")).code == 0
        waits_in = broker.broker.context.node.store.segments()[-1].start
        await fill(broker, 30)
        assert broker.broker.context.node.store.segments()[0].start == waits_in
        broker.now_ms += 2 * HOUR_MS
        answer = await broker.pull("orders", 2, 0, sysFlag="6", suspendTimeoutMillis="30000")
        assert [record.body for record in messages(answer)] == [b"later"]
        await fill(broker, 1)
        assert broker.broker.context.node.store.segments()[0].start > waits_in


@pytest.mark.parametrize("byte", [4 + 5, 4 + 6, 16 + 7], ids=["far", "near", "its number"])
async def test_what_a_member_is_fetching_stays_though_its_row_rotted(
    loop: NetworkedLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, byte: int
) -> None:
    """The row in the entry index of the entry that it asked for says another place, or nothing."""
    async with running_broker(loop, tmp_path, **SETTINGS) as broker:
        await broker.create_topic("orders")
        await fill(broker, 40)
        node = broker.broker.context.node
        told: list[object] = []
        monkeypatch.setattr(node.snapshot_sender, "_send", lambda _peer, said: told.append(said))
        monkeypatch.setattr(type(node.core), "serves", lambda _core, _peer: True)
        needed = node.store.entry_at(2 * SEGMENT, node.store.last_index)
        for index in (needed - 1, needed):
            node.snapshot_sender.fetch("n1", FetchRequest(1, index, index, SEGMENT))
            await asyncio.sleep(1)
        assert len(told) == 2
        flip(tmp_path / f"index/{0:020d}", needed * ROW_SIZE + byte)
        retention = broker.broker._retention
        monkeypatch.setattr(retention, "_policy", BY_SIZE)
        assert 0 < retention.due_position() <= 2 * SEGMENT


async def test_the_log_has_all_that_the_newest_checkpoint_counts_on(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    """A member refilled with it makes its ConsumeQueues from that log, and could not start."""

    async with running_broker(loop, tmp_path, **SETTINGS) as broker:
        await broker.create_topic("orders")
        await fill(broker, 40)
        context = broker.broker.context
        store = context.node.store
        assert store.first_position == 0
        expired: asyncio.Future[ProposeError | None] = context.loop.create_future()
        context.batcher.add_command(Expire(4 * SEGMENT), expired.set_result)
        assert await expired is None
        await asyncio.sleep(1)
        assert store.first_position == 0
        context.node.checkpointer.checkpoint()
        await asyncio.sleep(1)
        assert store.first_position == 4 * SEGMENT


async def test_a_start_gives_up_what_its_checkpoint_no_longer_has(
    loop: NetworkedLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be the leader's, or the process ended before the log was cut."""

    async with running_broker(loop, tmp_path, **SETTINGS) as broker:
        await broker.create_topic("orders")
        await fill(broker, 40)
        context = broker.broker.context
        monkeypatch.setattr(context.node.checkpointer, "expire", lambda _position: None)
        expired: asyncio.Future[ProposeError | None] = context.loop.create_future()
        context.batcher.add_command(Expire(4 * SEGMENT), expired.set_result)
        assert await expired is None
    async with running_broker(loop, tmp_path, **SETTINGS) as broker:
        assert broker.broker.context.machine.expired_position == 4 * SEGMENT
        assert broker.broker.context.node.store.first_position == 4 * SEGMENT


@pytest.mark.parametrize(
    "code",
    [
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
        RequestCode.CLEAN_UNUSED_TOPIC,
        RequestCode.DELETE_EXPIRED_COMMITLOG,
    ],
)
async def test_an_operator_can_ask_to_look_at_once(
    loop: NetworkedLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: RequestCode
) -> None:
    monkeypatch.setattr("broker.maintenance.retention.CHECK_SECONDS", 1e6)
    async with running_broker(loop, tmp_path, retention=BY_AGE, **SETTINGS) as broker:
        await broker.create_topic("orders")
        await fill(broker, 20)
        broker.now_ms = NOW_MS + AGE_MS + 1
        await asyncio.sleep(FOLLOWED_SECONDS)
        assert (await bounds(broker))[0] == 0
        assert (await broker.ask(code)).code == ResponseCode.SUCCESS
        await asyncio.sleep(0.1)
        assert (await bounds(broker))[0] > 0
