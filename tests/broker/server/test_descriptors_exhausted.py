"""A broker that can open no file for a while: nothing is wrong with its disk."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from broker.maintenance.retention import CHECK_SECONDS
from broker.remoting.protocol.codes import ResponseCode
from broker.state.commands import Expire
from dledger.node.applier import APPLY_RETRY_SECONDS
from store.errors import OutOfDescriptorsError
from store.io.filesystem import Bytes
from store.io.os_filesystem import OsFile, OsFileSystem
from tests.broker.single_broker import SingleBroker, messages, running_broker
from tests.support.virtual_network import NetworkedLoop

CHECKPOINT_SECONDS = 31


class NoDescriptors(OsFileSystem):
    """What :class:`~store.io.descriptor_reserve.DescriptorReserve` says when nothing helps."""

    lacking = False

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> OsFile:
        self._check(path)
        return super().open(path, create=create, writable=writable)

    def write(self, path: str, data: Bytes, position: int) -> None:
        self._check(path)
        super().write(path, data, position)

    def sync_directory(self, path: str) -> None:
        self._check(path)
        super().sync_directory(path)

    def sync_all(self, path: str) -> None:
        self._check(path)
        super().sync_all(path)

    def _check(self, path: str) -> None:
        if self.lacking:
            raise OutOfDescriptorsError(f"{path} cannot be opened now: Too many open files")


async def test_housekeeping_waits_and_goes_on(
    loop: NetworkedLoop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fs = NoDescriptors()

    with caplog.at_level(logging.WARNING):
        async with running_broker(loop, tmp_path, fs=fs) as broker:
            node = broker.broker.context.node
            await broker.create_topic("orders")
            await broker.send("orders", 0, b"before")
            await asyncio.sleep(CHECKPOINT_SECONDS)
            saved = node.checkpointer._checkpoint_index
            fs.lacking = True
            for _ in range(3):
                assert (await broker.send("orders", 0, b"x")).code == ResponseCode.SUCCESS
                await asyncio.sleep(CHECKPOINT_SECONDS)
            assert node.failure is None
            assert node.checkpointer._checkpoint_index == saved
            assert "checkpointing waits" in caplog.text
            assert "cannot be opened now: Too many open files" in caplog.text
            fs.lacking = False
            await asyncio.sleep(CHECKPOINT_SECONDS)
            assert node.checkpointer._checkpoint_index > saved
            assert len(messages(await broker.pull("orders", 0, 0))) == 4


async def test_an_expiry_is_applied_later(loop: NetworkedLoop, tmp_path: Path) -> None:
    fs = NoDescriptors()
    async with running_broker(loop, tmp_path, fs=fs) as broker:
        context = broker.broker.context
        await broker.create_topic("orders")
        await broker.send("orders", 0, b"old")
        position = context.machine.applied_end
        await broker.send("orders", 0, b"new")
        await asyncio.sleep(CHECKPOINT_SECONDS)
        fs.lacking = True
        context.batcher.add_command(Expire(position))
        await asyncio.sleep(CHECKPOINT_SECONDS)
        assert context.node.failure is None
        assert context.machine.expired_position == 0
        fs.lacking = False
        await asyncio.sleep(2 * APPLY_RETRY_SECONDS)
        assert context.machine.expired_position == position
        queue = context.machine.queue("orders", 0)
        assert queue is not None
        assert queue.first_offset == 1


async def test_a_look_for_old_segments_is_made_later(
    broker: SingleBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot(_retention: object) -> int:
        raise OutOfDescriptorsError("a file cannot be opened now")

    with monkeypatch.context() as patch:
        patch.setattr("broker.maintenance.retention.Retention.due_position", cannot)
        await asyncio.sleep(3 * CHECK_SECONDS)
    assert broker.broker.context.node.failure is None
