"""ConsumeQueues and key index are made again from the log where that was asked for."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from broker.maintenance.derived_files_check import DerivedFilesCheck
from broker.state.state_machine import BrokerStateMachine
from store.errors import DerivedDamageError, DiskFullError, FatalDiskError, StoreError
from store.index_rebuild import rebuild_derived, request_rebuild
from store.io.os_filesystem import OsFile, OsFileSystem
from store.log.entry import EntryKind
from store.message.batch import decode_batch
from store.recovery.opening import StoreConfig
from store.replica import ReplicaStore
from tests.broker.single_broker import SingleBroker, messages, with_broker

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


def test_what_is_rebuilt_equals_what_was_lost(tmp_path: Path) -> None:
    async def before(broker: SingleBroker) -> None:
        await broker.create_topic("orders")
        for number in range(60):
            await broker.send("orders", number % 3, b"%d" % number * 1000, KEYED % number)

    async def after(broker: SingleBroker) -> None:
        assert not (tmp_path / "state" / "rebuild").exists()
        assert derived(tmp_path) == kept
        found = messages(await broker.pull("orders", 1, 0))
        assert [record.queue_offset for record in found] == list(range(len(found)))
        assert found[0].body == b"1" * 1000

    with_broker(before, tmp_path, **SETTINGS)
    kept = derived(tmp_path)
    assert len(kept["keys"]) >= 60 * 16
    for path in [*(tmp_path / "consumequeue").rglob("0*"), *(tmp_path / "keyindex").iterdir()]:
        if path.is_file():
            path.write_bytes(b"rot" * 20)
    request_rebuild(OsFileSystem(), str(tmp_path))
    with_broker(after, tmp_path, **SETTINGS)


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
        (errno.EIO, FatalDiskError("could not be made again: .*consumequeue/orders/0/0{20}")),
    ],
)
def test_a_disk_that_is_full_or_fails_says_so_and_leaves_the_request(
    error: int, told: StoreError, tmp_path: Path
) -> None:
    async def before(broker: SingleBroker) -> None:
        await broker.create_topic("orders")
        await broker.send("orders", 0, b"x")

    async def after(_: SingleBroker) -> None:
        raise AssertionError("it has started")

    with_broker(before, tmp_path, **SETTINGS)
    request_rebuild(OsFileSystem(), str(tmp_path))
    with pytest.raises(type(told), match=str(told)):
        with_broker(after, tmp_path, fs=NoQueues(error), **SETTINGS)
    assert (tmp_path / "state" / "rebuild").exists()


def rot(data: Path, position: int) -> None:
    start = position - position % SETTINGS["segment_size"]
    with (data / "commitlog" / f"{start:020d}").open("r+b") as file:
        file.seek(position - start + 41)  # of the body's CRC
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))


OWN = StoreConfig("broker-a", "n0", SETTINGS["segment_size"], min_free_bytes=0, incarnation=9)


@pytest.mark.parametrize("rotten", [(0,), (1,), (5, 6), (3, 20, 40)])
def test_entries_that_have_rotted_below_the_checkpoint_are_passed_over(
    rotten: tuple[int, ...], tmp_path: Path
) -> None:
    """Their rows come when they are whole again; nobody reads anything else in their places."""

    async def before(broker: SingleBroker) -> None:
        await broker.create_topic("orders")
        for number in range(60):
            await broker.send("orders", number % 3, b"%d" % number * 1000, KEYED % number)

    with_broker(before, tmp_path, **SETTINGS)
    kept = derived(tmp_path)
    fs, directory = OsFileSystem(), str(tmp_path)
    store = ReplicaStore.open(fs, directory, OWN)
    checkpoint = store.recovered.checkpoint
    assert checkpoint is not None
    assert checkpoint.index > max(rotten)
    entries = store.read_entries(0, store.last_index, 1 << 30)
    request_rebuild(fs, directory)
    for index in rotten:
        rot(tmp_path, entries[index].position)
    assert rebuild_derived(fs, directory, store)
    assert not (tmp_path / "state" / "rebuild").exists()

    machine = BrokerStateMachine.open(fs, directory, SETTINGS["segment_size"])
    machine.restore(checkpoint.state)
    for entry in entries if rotten != (0,) else ():  # the first has no message
        for run in decode_batch(entry.body).runs if entry.kind is EntryKind.DATA else ():
            queue = machine.queue(run.topic, run.queue_id)
            assert queue is not None
            row = decode_batch(entry.body).rows[run.first_row * 20 :][:20]
            with suppress(DerivedDamageError):
                assert queue.read(run.first_offset, 1) == row
    for index in rotten:
        store.repair_entry(entries[index])
    check = DerivedFilesCheck(store, machine.keys, machine.queue)
    check.begin_pass()
    check.check(store.read_entries(0, store.last_index, 1 << 30))
    check.end_pass()
    store.close()
    assert derived(tmp_path) == kept
