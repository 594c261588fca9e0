"""ConsumeQueues and key index are made again from the log where that was asked for."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from store.errors import DiskFullError, FatalDiskError, StoreError
from store.osfiles import OsFile, OsFileSystem
from store.rebuild import request_rebuild
from tests.broker.harness import SingleBroker, messages, with_broker

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
