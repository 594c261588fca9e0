"""ConsumeQueues and indexes that rot are named, and made again from the log."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from broker.maintenance.derived_files_check import DerivedFilesCheck
from broker.remoting.protocol.codes import ResponseCode
from dledger.node import scrubber
from store.errors import DerivedDamageError
from store.index.queue_tails import decode_tails, read_tails
from store.io.filesystem import Bytes, File
from store.io.os_filesystem import OsFileSystem
from store.log.entry import Entry
from tests.broker.single_broker import SingleBroker, flip, messages, running_broker
from tests.support.virtual_network import NetworkedLoop

SETTINGS: dict[str, Any] = {
    "segment_size": 64 << 10,
    "max_message_size": 16 << 10,
    "scrub_pass_seconds": 2,
}


def cut(path: Path, _byte: int) -> None:
    path.write_bytes(path.read_bytes()[:50])


def unlink(path: Path, _byte: int) -> None:
    path.unlink()


async def filled(broker: SingleBroker) -> None:
    """Messages with keys, and a checkpoint that covers them."""
    await broker.create_topic("orders")
    for number in range(30):
        await broker.send("orders", number % 2, b"%d" % number * 900, f"KEYS\x01k{number}\x02")
    await asyncio.sleep(40)


@pytest.mark.parametrize("harm", [flip, cut, unlink])
@pytest.mark.parametrize("kind", ["consumequeue/orders/1", "keyindex"])
async def test_a_derived_file_that_rots_is_named_and_as_it_was_soon_after(
    loop: NetworkedLoop, tmp_path: Path, kind: str, harm: Callable[[Path, int], None]
) -> None:
    async with running_broker(loop, tmp_path, **SETTINGS) as broker:
        await filled(broker)
        (path,) = (tmp_path / kind).iterdir()
        whole = path.read_bytes()
        harm(path, 65)
        assert not path.exists() or path.read_bytes() != whole
        await asyncio.sleep(6)
        assert path.read_bytes() == whole
        repaired = broker.broker.context.node.scrubber.repaired
        assert any(str(path) in told for told in repaired)
        found = messages(await broker.pull("orders", 1, 0))
        assert [record.queue_offset for record in found] == list(range(15))


@pytest.mark.parametrize("byte", [2, 4, 11, 14, 23, 31])
@pytest.mark.parametrize("scrubbed", [False, True])
async def test_a_row_of_the_entry_index_is_made_again_from_the_log_by_a_node_that_is_alone(
    loop: NetworkedLoop, tmp_path: Path, scrubbed: bool, byte: int
) -> None:
    """By the scrub, or at once when a consumer wants an entry near it; no message is refused."""

    never = SETTINGS | {"scrub_pass_seconds": 1_000_000}
    async with running_broker(loop, tmp_path, **never) as broker:
        await filled(broker)
    (path,) = (tmp_path / "index").iterdir()
    whole = path.read_bytes()
    flip(path, 20 * 32 + byte)
    async with running_broker(loop, tmp_path, **SETTINGS if scrubbed else never) as broker:
        node = broker.broker.context.node
        await asyncio.sleep(6)
        refused = 0
        for number in list(range(30)) * 2:
            answer = await broker.pull("orders", number % 2, number // 2, maxMsgNums="1")
            refused += answer.code == ResponseCode.SYSTEM_ERROR
            await asyncio.sleep(0.1)
        assert refused == 0
        assert path.read_bytes() == whole
        assert not node.scrubber.damage
        assert "row 20 of the entry index" in node.scrubber.repaired


@pytest.mark.parametrize("harm", [flip, cut, unlink])
async def test_the_checksums_of_the_newest_rows_are_saved_again_though_nothing_is_sent(
    loop: NetworkedLoop, tmp_path: Path, harm: Callable[[Path, int], None]
) -> None:
    async with running_broker(loop, tmp_path, **SETTINGS) as broker:
        await filled(broker)
    path = tmp_path / "state/tails"
    whole = path.read_bytes()
    harm(path, 20)
    async with running_broker(loop, tmp_path, **SETTINGS):
        await asyncio.sleep(6)
        assert read_tails(OsFileSystem(), str(path.parent)) == decode_tails(whole, "")


async def test_whole_files_are_left_alone(loop: NetworkedLoop, tmp_path: Path) -> None:
    async with running_broker(loop, tmp_path, **SETTINGS) as broker:
        await filled(broker)
        scrubber = broker.broker.context.node.scrubber
        passes = scrubber.passes
        await asyncio.sleep(10)
        assert scrubber.passes > passes
        assert not scrubber.repaired
        assert not scrubber.damage


async def test_a_derived_file_that_is_damaged_at_the_start_is_made_again(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    async with running_broker(loop, tmp_path, **SETTINGS) as broker:
        await filled(broker)
    (path,) = (tmp_path / "consumequeue/orders/1").iterdir()
    path.write_bytes(b"")
    (path,) = (tmp_path / "keyindex").iterdir()
    path.write_bytes(b"DLKI")
    async with running_broker(loop, tmp_path, **SETTINGS) as broker:
        found = messages(await broker.pull("orders", 1, 0))
        assert [record.queue_offset for record in found] == list(range(15))
        assert (await broker.send("orders", 1, b"x")).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("full", [False, True], ids=["whole", "disk full"])
async def test_readers_that_ask_again_and_again_do_not_read_the_log_each_time(
    loop: NetworkedLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    """Where the log itself is damaged a comparison finds nothing, and each query began another. So
    it did where no file can be made again."""
    looks = 0
    check = DerivedFilesCheck.check

    def counted(derived: DerivedFilesCheck, entries: Sequence[Entry]) -> list[str]:
        nonlocal looks
        looks += 1
        return check(derived, entries)

    monkeypatch.setattr(DerivedFilesCheck, "check", counted)
    async with running_broker(loop, tmp_path, **SETTINGS | {"scrub_pass_seconds": 1e6}) as broker:
        await filled(broker)
        node = broker.broker.context.node
        (path,) = (tmp_path / "consumequeue/orders/1").iterdir()
        whole = path.read_bytes()
        with monkeypatch.context() as patch:
            if full:
                flip(path, 65)
                patch.setattr("store.index.queue_rows.overwrite_blocks", no_room)
            for _ in range(200):
                node.scrubber.suspect_derived(0)
                await asyncio.sleep(0.01)
        assert 1 <= looks <= 4
        assert node.failure is None
        await asyncio.sleep(2)
        node.scrubber.suspect_derived(0)
        await asyncio.sleep(2)
        assert path.read_bytes() == whole


def no_room(_file: File, _data: Bytes, _offset: int, *, may_cut: bool) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("kind", ["consumequeue/orders/1", "keyindex"])
async def test_what_a_reader_finds_wrong_is_made_again_at_once_while_a_pass_goes_on(
    loop: NetworkedLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The two read the log in turns, and each needs entries that follow each other."""
    monkeypatch.setattr(scrubber, "PIECE_BYTES", 1)  # an entry
    async with running_broker(loop, tmp_path, **SETTINGS) as broker:
        await filled(broker)
        context = broker.broker.context
        scrub = context.node.scrubber
        scrub._bytes_per_second = 1000  # about an entry
        await asyncio.sleep(6)
        assert 0.05 < scrub.progress < 0.25
        (path,) = (tmp_path / kind).iterdir()
        whole = path.read_bytes()
        path.unlink()
        if kind == "keyindex":
            with pytest.raises(DerivedDamageError):
                context.machine.keys.lookup(1, 0, 1 << 50, 1)
        else:
            assert (await broker.pull("orders", 1, 0)).code == ResponseCode.SYSTEM_ERROR
        await asyncio.sleep(60)
        assert path.read_bytes() == whole
