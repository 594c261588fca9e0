"""ConsumeQueues and key index are made again from the log where that was asked for."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from broker.remoting.protocol.codes import ResponseCode
from store.errors import DiskFullError, FatalDiskError, StoreError
from store.index_rebuild import rebuild_derived, request_rebuild
from store.io.os_filesystem import OsFile, OsFileSystem
from store.log.entry import EntryKind
from store.log.entry_row import ROW
from store.message.batch import decode_batch
from store.recovery.opening import StoreConfig
from store.replica import ReplicaStore
from tests.broker.single_broker import SingleBroker, messages, running_broker
from tests.support.virtual_network import NetworkedLoop

SETTINGS: dict[str, Any] = {"segment_size": 64 << 10, "max_message_size": 16 << 10}
KEYED = "KEYS\x01k%d\x02"


def derived(data: Path) -> dict[str, bytes]:
    """Rows in any number of files are the same rows: key files are told by their rows alone."""
    queues = {
        str(path.relative_to(data)): path.read_bytes()
        for path in sorted((data / "consumequeue").rglob("*"))
        if path.is_file()
    }
    files = [path.read_bytes() for path in (data / "keyindex").iterdir()]
    joined = b"".join(data[40:][: 16 * int.from_bytes(data[32:36], "big")] for data in files)
    keys = sorted(joined[at : at + 16] for at in range(0, len(joined), 16))
    return queues | {"keys": b"".join(keys)}


async def test_what_is_rebuilt_equals_what_was_lost(loop: NetworkedLoop, tmp_path: Path) -> None:
    async with running_broker(loop, tmp_path, **SETTINGS) as broker:
        await broker.create_topic("orders")
        for number in range(60):
            await broker.send("orders", number % 3, b"%d" % number * 1000, KEYED % number)
    kept = derived(tmp_path)
    assert len(kept["keys"]) >= 60 * 16
    for path in [*(tmp_path / "consumequeue").rglob("0*"), *(tmp_path / "keyindex").iterdir()]:
        if path.is_file():
            path.write_bytes(b"rot" * 20)
    request_rebuild(OsFileSystem(), str(tmp_path))
    async with running_broker(loop, tmp_path, **SETTINGS) as broker:
        assert not (tmp_path / "state" / "rebuild").exists()
        assert derived(tmp_path) == kept
        found = messages(await broker.pull("orders", 1, 0))
        assert [record.queue_offset for record in found] == list(range(len(found)))
        assert found[0].body == b"1" * 1000


class NoQueues(OsFileSystem):
    """A disk on which no file of a ConsumeQueue can be made."""

    def __init__(self, error: int) -> None:
        super().__init__()
        self._error = error

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> OsFile:
        if create and "consumequeue" in path:
            raise OSError(self._error, os.strerror(self._error), path)
        return super().open(path, create=create, writable=writable)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (errno.ENOSPC, DiskFullError("no room for derived files: .*consumequeue/orders/0/0{20}")),
        (errno.EIO, FatalDiskError("could not be rebuilt: .*consumequeue/orders/0/0{20}")),
    ],
)
async def test_a_disk_that_is_full_or_fails_says_so_and_leaves_the_request(
    loop: NetworkedLoop, error: int, told: StoreError, tmp_path: Path
) -> None:
    async with running_broker(loop, tmp_path, **SETTINGS) as broker:
        await broker.create_topic("orders")
        await broker.send("orders", 0, b"x")
    request_rebuild(OsFileSystem(), str(tmp_path))
    with pytest.raises(type(told), match=str(told)):
        async with running_broker(loop, tmp_path, fs=NoQueues(error), **SETTINGS):
            raise AssertionError("it has started")
    assert (tmp_path / "state" / "rebuild").exists()


def rot(data: Path, position: int) -> None:
    start = position - position % SETTINGS["segment_size"]
    with (data / "commitlog" / f"{start:020d}").open("r+b") as file:
        file.seek(position - start + 41)  # of the body's CRC
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))


OWN = StoreConfig("broker-a", "n0", SETTINGS["segment_size"], min_free_bytes=0, incarnation=9)


@pytest.mark.parametrize("rotten", [(0,), (1,), (5, 6), (3, 20, 40), (58, 59, 60)])
async def test_what_follows_from_rotted_entries_is_made_again_once_they_are_whole(
    loop: NetworkedLoop, rotten: tuple[int, ...], tmp_path: Path
) -> None:
    """A node serves what is whole. What is not whole it refuses, and gives no other message."""

    async def given(broker: SingleBroker) -> dict[int, bytes]:
        """Bodies by the numbers of the messages that are given, each asked for alone."""
        found = {}
        for number in range(60):
            answer = await broker.pull("orders", number % 3, number // 3, maxMsgNums="1")
            if answer.code == ResponseCode.SUCCESS:
                (record,) = messages(answer)
                found[number] = bytes(record.body)
        return found

    async with running_broker(loop, tmp_path, **SETTINGS) as broker:
        await broker.create_topic("orders")
        for number in range(60):
            await broker.send("orders", number % 3, b"%d" % number * 1000, KEYED % number)
    whole = {number: b"%d" % number * 1000 for number in range(60)}
    kept = derived(tmp_path)
    fs, directory = OsFileSystem(), str(tmp_path)
    store = ReplicaStore.open(fs, directory, OWN)
    checkpoint = store.recovered.checkpoint
    assert checkpoint is not None
    assert checkpoint.index > max(rotten)
    entries = store.read_entries(0, store.last_index, 1 << 30)
    store.close()
    request_rebuild(fs, directory)
    for index in rotten:
        rot(tmp_path, entries[index].position)
    async with running_broker(loop, tmp_path, scrub_pass_seconds=2, **SETTINGS) as broker:
        found = await given(broker)
        assert found.items() <= whole.items()
        damaged = [entries[index] for index in rotten if entries[index].kind is EntryKind.DATA]
        runs = [run for entry in damaged for run in decode_batch(entry.body).runs]
        assert len(whole) - len(found) == sum(run.row_count for run in runs)
        for index in rotten:
            broker.broker.context.node.store.repair_entry(entries[index])
        await asyncio.sleep(10)
        assert await given(broker) == whole
    assert not (tmp_path / "state" / "rebuild").exists()
    assert derived(tmp_path) == kept


async def test_a_rebuild_leaves_no_entry_out_whose_row_of_the_entry_index_alone_has_rotted(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    async with running_broker(loop, tmp_path, **SETTINGS) as broker:
        await broker.create_topic("orders")
        for number in range(20):
            await broker.send("orders", 0, b"%d" % number, KEYED % number)
    kept = derived(tmp_path)
    (path,) = (tmp_path / "index").iterdir()
    rows = bytearray(path.read_bytes())
    for index in (5, 6, 10):
        rows[index * ROW.size + ROW.size // 2] ^= 1
    path.write_bytes(rows)
    fs, directory = OsFileSystem(), str(tmp_path)
    store = ReplicaStore.open(fs, directory, OWN)
    assert not store.check_entries(0, 12, 1 << 20).damage
    assert store.index_needs_repair
    request_rebuild(fs, directory)
    assert rebuild_derived(fs, directory, store)
    store.close()
    assert derived(tmp_path) == kept


async def broker_that_rebuilds(loop: NetworkedLoop, directory: Path) -> SingleBroker:
    """One that does so at its start, once its executor is released."""
    async with running_broker(loop, directory, **SETTINGS) as broker:
        await broker.create_topic("orders")
        await broker.send("orders", 0, b"x")
    request_rebuild(OsFileSystem(), str(directory))
    broker = SingleBroker(loop, directory, **SETTINGS)
    broker.log_executor.hold()
    return broker


async def test_a_rebuild_takes_no_turn_of_the_loop_and_the_broker_joins_behind_it(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    broker = await broker_that_rebuilds(loop, tmp_path)
    starting = loop.create_task(broker.start())
    await asyncio.sleep(5)
    assert (tmp_path / "state" / "rebuild").exists()
    assert not broker.broker.context.node.alive
    broker.log_executor.release()
    await starting
    assert not (tmp_path / "state" / "rebuild").exists()
    await broker.stop()


async def test_who_stops_a_start_while_it_rebuilds_leaves_the_request(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    broker = await broker_that_rebuilds(loop, tmp_path)
    starting = loop.create_task(broker.broker.start())
    await asyncio.sleep(5)
    starting.cancel()
    await asyncio.sleep(5)
    assert not starting.done()  # the lane may have the files
    broker.log_executor.release()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert (tmp_path / "state" / "rebuild").exists()
    broker.broker.context.node.store.close()
    async with running_broker(loop, tmp_path, **SETTINGS) as again:
        assert not (tmp_path / "state" / "rebuild").exists()
        assert [record.body for record in messages(await again.pull("orders", 0, 0))] == [b"x"]
