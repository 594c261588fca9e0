"""ConsumeQueues and key index are made again from the log where that was asked for."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from dledger.node.startup_repair import open_repaired
from store.errors import DamagedLogError, DiskFullError, FatalDiskError, StoreError
from store.index_rebuild import Rebuild, rebuild_derived, request_rebuild
from store.io.os_filesystem import OsFile, OsFileSystem
from store.recovery.opening import StoreConfig
from store.replica import ReplicaStore
from tests.broker.single_broker import SingleBroker, messages, with_broker
from tests.dledger.node.test_startup_repair import Givers
from tests.support.virtual_network import VirtualLoop

SETTINGS: dict[str, Any] = {"segment_size": 64 << 10, "max_message_size": 16 << 10}
KEYED = "KEYS\x01k%d\x02"


def derived(data: Path) -> dict[str, bytes]:
    """Rows in any number of files are the same rows: key files are told by their rows alone."""
    queues = {
        str(path.relative_to(data)): path.read_bytes()
        for path in sorted((data / "consumequeue").rglob("*"))
        if path.is_file()
    }
    rows = [path.read_bytes()[40:] for path in (data / "keyindex").iterdir()]
    joined = b"".join(rows)
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
def test_entries_that_have_rotted_below_the_checkpoint_are_put_back_on_the_way(
    rotten: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are not read as the log is opened, and no node runs yet that would look for them."""

    async def before(broker: SingleBroker) -> None:
        await broker.create_topic("orders")
        for number in range(60):
            await broker.send("orders", number % 3, b"%d" % number * 1000, KEYED % number)

    async def after(broker: SingleBroker) -> None:
        found = messages(await broker.pull("orders", 1, 0))
        assert found[0].body == b"1" * 1000

    with_broker(before, tmp_path, **SETTINGS)
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
    store = ReplicaStore.open(fs, directory, OWN)
    with pytest.raises(DamagedLogError) as raised:
        rebuild_derived(fs, directory, store)
    store.close()
    assert raised.value.index == rotten[0]

    loop = VirtualLoop()
    givers = Givers(loop, {"n1": entries}, {})  # type: ignore[arg-type]  # a service of lists
    asked: list[int] = []
    monkeypatch.setattr(ReplicaStore, "repair_row", lambda _store, place: asked.append(place))

    async def run() -> None:
        opened = await open_repaired(
            fs, directory, OWN, lambda: givers, loop, ["n1"], prepare=Rebuild(fs, directory).run
        )
        opened.close()

    loop.run_until_complete(run())
    loop.close()
    assert len(givers.asked) == len(asked)  # each place is met once: it goes on where it was
    assert not (tmp_path / "state" / "rebuild").exists()
    assert derived(tmp_path) == kept
    with_broker(after, tmp_path, **SETTINGS)
