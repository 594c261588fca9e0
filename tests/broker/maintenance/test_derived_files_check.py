"""The check of derived files against the log, where some of the log cannot be read."""

from __future__ import annotations

import errno
import os
from functools import partial
from random import Random

import pytest
from crc32c import crc32c

from broker.maintenance.derived_files_check import DerivedFilesCheck
from broker.maintenance.queue_blocks_check import QueueBlocksCheck
from simulator.engine.disk import Fault, SimulatedFileSystem
from store.errors import DiskFullError
from store.index.block_seals import UNKNOWN
from store.index.queue_rows import ROWS_PER_FILE
from store.index.queue_tails import Tails, amend_tails, read_tails
from store.log.entry import EntryKind
from store.message.batch import decode_batch
from store.state.machine_state import decode_machine_state
from tests.broker.maintenance.started_replicas import READ_BYTES, restore, restored
from tests.store import sample_replica


def test_good_rows_stay_when_an_entry_between_them_is_damaged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The rows behind the gap do not follow those before it."""
    fs, replica = restored(monkeypatch)
    replica.keys.restore(1 << 62)
    store = replica.store
    files = [path for path in fs.files() if "/consumequeue/" in path]
    before = [fs.visible_bytes(path) for path in files]
    check = DerivedFilesCheck(
        store, replica.keys, replica.queues.get, save_tails=lambda _tails: None
    )
    check.begin_pass()
    entries = store.read_entries(0, store.last_index, READ_BYTES)
    whole = [entry for entry in entries if entry.index not in (7, 8, 20)]
    assert len(whole) > 20
    assert check.check(whole) == []
    assert [fs.visible_bytes(path) for path in files] == before


def test_a_block_is_made_again_once_all_its_entries_are_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fs, replica = restored(monkeypatch)
    replica.keys.restore(1 << 62)
    store = replica.store
    path = next(path for path in fs.files() if "/consumequeue/orders/0/" in path)
    before = fs.visible_bytes(path)
    fs.flip_bit(path, 20 * 25 + 3)
    check = DerivedFilesCheck(
        store, replica.keys, replica.queues.get, save_tails=lambda _tails: None
    )
    check.begin_pass()
    entries = store.read_entries(0, store.last_index, READ_BYTES)
    assert check.check([entry for entry in entries if entry.index != 7]) == []
    check.begin_pass()
    told = check.check(entries)
    assert told == [f"{path}, byte {20 * 25}: the row differs from the log"]
    assert fs.visible_bytes(path) == before


def test_a_lost_file_whose_first_rows_have_expired_gets_the_checksum_of_what_stands_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sample_replica, "ROWS_PER_FILE", ROWS_PER_FILE)
    fs = SimulatedFileSystem(Random(1))
    directory = sample_replica.write_replica(fs).directory
    replica = sample_replica.Replica(fs)
    restore(replica)
    store = replica.store
    checkpoint = store.recovered.checkpoint
    assert checkpoint is not None
    state = decode_machine_state(checkpoint.state)
    queue = replica.queues.get("orders", 0)
    assert queue is not None
    entries = [
        entry
        for entry in store.read_entries(8, store.last_index, READ_BYTES)
        if entry.kind is EntryKind.DATA
    ]
    queue.first_offset = next(
        run.first_offset
        for entry in entries
        for run in decode_batch(entry.body).runs
        if (run.topic, run.queue_id) == ("orders", 0)
    )
    assert queue.first_offset > 0
    assert queue.tail.crc != UNKNOWN
    fs.vanish(queue.locate(0)[0])
    check = QueueBlocksCheck(replica.queues.get)

    def look() -> list[str]:
        check.begin_pass(state)
        check.begin_run(is_first=True)
        return [told for entry in entries for told in check.take(decode_batch(entry.body))]

    assert [told for told in look() if queue.locate(0)[0] in told]
    on_disk = queue.on_disk().read_disk(0, queue.tail.end)
    assert queue.tail.crc == crc32c(on_disk)
    assert look() == []
    saved = read_tails(fs, f"{directory}/state")
    assert saved["orders", 0] != queue.tail
    calls = fs.calls
    replica.queues.begin_flush().run()
    assert fs.calls == calls  # there are no new rows
    amend_tails(fs, f"{directory}/state", check.sealed_tails())
    assert read_tails(fs, f"{directory}/state") == saved | {("orders", 0): queue.tail}
    calls = fs.calls
    amend_tails(fs, f"{directory}/state", check.sealed_tails())
    assert fs.calls == calls  # the file has them


def test_a_block_for_which_there_is_no_room_is_made_again_once_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fs, replica = restored(monkeypatch)
    replica.keys.restore(1 << 62)
    store = replica.store
    path = next(path for path in fs.files() if "/consumequeue/orders/0/" in path)
    before = fs.visible_bytes(path)
    fs.flip_bit(path, 20 * 25 + 3)
    check = DerivedFilesCheck(
        store,
        replica.keys,
        replica.queues.get,
        save_tails=lambda _tails: None,
        unwritable=lambda: pytest.fail("there is only no room"),
    )
    entries = store.read_entries(0, store.last_index, READ_BYTES)
    fs.inject(Fault(1, errno.ENOSPC, operations={"pwrite"}))
    check.begin_pass()
    with pytest.raises(DiskFullError, match="no room for derived files"):
        check.check(entries)
    check.begin_pass()
    (told,) = check.check(entries)
    assert told.startswith(path)
    assert fs.visible_bytes(path) == before


def test_tails_for_which_there_is_no_room_are_saved_by_the_next_pass() -> None:
    fs = SimulatedFileSystem(Random(1))
    directory = sample_replica.write_replica(fs).directory
    replica = sample_replica.Replica(fs)
    fs.remove(f"{directory}/state/tails")
    restore(replica)
    replica.keys.restore(1 << 62)
    store = replica.store
    full = True

    def save(tails: Tails) -> None:
        if full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        amend_tails(fs, f"{directory}/state", tails)

    check = DerivedFilesCheck(store, replica.keys, replica.queues.get, save_tails=save)
    entries = store.read_entries(0, store.last_index, READ_BYTES)
    check.begin_pass()
    assert check.check(entries) == []
    with pytest.raises(DiskFullError, match="no room for derived files"):
        check.end_pass()
    full = False
    check.begin_pass()
    assert check.check(entries) == []
    assert check.end_pass() == []
    tails = {(queue.topic, queue.queue_id): queue.tail for queue in replica.queues.all()}
    sealed = {key: tail for key, tail in tails.items() if tail.position >= 0}
    assert len(sealed) == 2
    assert read_tails(fs, f"{directory}/state") == sealed


@pytest.mark.parametrize("kind", ["consumequeue/orders/0", "keyindex"])
def test_two_checks_that_read_the_log_in_turns_do_not_disturb_each_other(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A pass, and the comparison that a reader asked for. What both find is told once."""
    fs, replica = restored(monkeypatch)
    store = replica.store
    path = next(path for path in fs.files() if f"/{kind}/" in path)
    before = fs.visible_bytes(path)
    fs.vanish(path)
    replica.keys.restore(1 << 62)
    make_check = partial(
        DerivedFilesCheck,
        store,
        replica.keys,
        replica.queues.get,
        save_tails=lambda _tails: None,
    )
    entries = store.read_entries(0, store.last_index, READ_BYTES)
    ahead, behind = make_check(), make_check()
    ahead.begin_pass()
    told = ahead.check(entries[:3])
    behind.begin_pass()
    for number in range(3, len(entries) + 3):
        told += ahead.check(entries[number : number + 1])
        told += behind.check(entries[number - 3 : number - 2])
    assert [text for text in told if path in text]
    assert fs.visible_bytes(path) == before
    if kind == "keyindex":
        assert len(told) == 1
