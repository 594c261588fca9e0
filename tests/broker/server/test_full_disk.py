"""What a broker does while its disk fills up."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker.remoting.protocol.codes import RequestCode, ResponseCode
from store.io.disk_watermarks import DiskWatermarks
from store.io.os_filesystem import OsFileSystem
from store.log.retention_policy import RetentionPolicy
from tests.broker.single_broker import messages, running_broker
from tests.support.virtual_network import NetworkedLoop

TOTAL = 1000 << 20
SEGMENT = 64 << 10
SETTINGS: dict[str, Any] = {"segment_size": SEGMENT, "max_message_size": 16 << 10}


class FillingDisk(OsFileSystem):
    """A disk of 1000 MiB of which a test says how much is used."""

    def __init__(self) -> None:
        super().__init__()
        self.used_percent = 10

    def free_bytes(self, path: str) -> int:
        return TOTAL * (100 - self.used_percent) // 100

    def total_bytes(self, path: str) -> int:
        return TOTAL


async def test_messages_are_refused_with_a_code_while_the_disk_is_full_and_reads_go_on(
    loop: NetworkedLoop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FillingDisk()

    async with running_broker(loop, tmp_path, fs=disk, **SETTINGS) as broker:
        await broker.create_topic("orders")
        assert (await broker.send("orders", 0, b"before")).code == ResponseCode.SUCCESS
        disk.used_percent = 91
        await asyncio.sleep(2)
        refused = await broker.send("orders", 0, b"while")
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        room = (
            "90.0 of 1000.0 MiB are free, and 0.0 MiB must stay free, "
            "or 10 % of the disk if that is more, up to 4096 MiB"
        )
        assert str(refused.remark).endswith(f"bytes: {room}")
        assert f"the disk is full, messages are refused: {room}" in caplog.text
        assert [m.body for m in messages(await broker.pull("orders", 0, 0))] == [b"before"]
        offset = {"consumerGroup": "readers", "topic": "orders", "queueId": "0"}
        stored = await broker.ask(
            RequestCode.UPDATE_CONSUMER_OFFSET, offset | {"commitOffset": "1"}
        )
        assert stored.code == ResponseCode.SUCCESS
        disk.used_percent = 89
        await asyncio.sleep(2)
        assert (await broker.send("orders", 0, b"after")).code == ResponseCode.SUCCESS


async def test_messages_are_refused_while_too_few_voters_have_room_and_taken_again(
    loop: NetworkedLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_broker(loop, tmp_path, **SETTINGS) as broker:
        await broker.create_topic("orders")
        peers = broker.broker.context.node.health.peers
        with monkeypatch.context() as patched:
            patched.setattr(peers, "voters_without_room", lambda: ("n1", "n2"))
            await asyncio.sleep(1)
            refused = await broker.send("orders", 0, b"while")
            assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert "n1 and n2 say that they have no room" in str(refused.remark)
        await asyncio.sleep(1)
        assert (await broker.send("orders", 0, b"after")).code == ResponseCode.SUCCESS


async def test_old_segments_go_while_the_disk_is_above_its_second_watermark(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    disk = FillingDisk()
    # One segment of room is missing below each of the watermarks of this tiny log.
    marks = DiskWatermarks(75, 85, 90, enough_bytes=TOTAL)
    policy = RetentionPolicy(age_ms_max=None, watermarks=marks)

    async with running_broker(loop, tmp_path, fs=disk, retention=policy, **SETTINGS) as broker:
        await broker.create_topic("orders")
        for _ in range(40):
            assert (await broker.send("orders", 0, b"x" * 8000)).code == ResponseCode.SUCCESS
        for _ in range(2):
            await asyncio.sleep(31)
            await broker.send("orders", 1, b"x")
        store = broker.broker.context.node.store
        assert store.segments()[0].start == 0
        disk.used_percent = 86
        await asyncio.sleep(2)
        await broker.send("orders", 1, b"x")
        for _ in range(2):
            await asyncio.sleep(31)
            await broker.send("orders", 1, b"x")
        spans = store.segments()
        assert spans[0].start > 0
        ask = {"topic": "orders", "queueId": "0"}
        least = (await broker.ask(RequestCode.GET_MIN_OFFSET, ask)).ext["offset"]
        most = (await broker.ask(RequestCode.GET_MAX_OFFSET, ask)).ext["offset"]
        assert 0 < int(str(least)) <= int(str(most)) == 40


async def test_a_disk_that_is_too_small_from_the_start_is_told_so(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    async with running_broker(loop, tmp_path, fs=FillingDisk(), **SETTINGS) as broker:
        store = broker.broker.context.node.store
        store._log.min_free_bytes = 1000 << 20
        await asyncio.sleep(2)
        refused = await broker.send("orders", 0, b"first")
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "900.0 of 1000.0 MiB are free, and 1000.0 MiB must stay free, " in str(
            refused.remark
        )
