"""The check of derived files against the log, where some of the log cannot be read."""

from __future__ import annotations

import errno
import os
from functools import partial
from random import Random

import pytest
from crc32c import crc32c

from broker.maintenance.derived_files_check import DerivedFilesCheck
from broker.maintenance.key_files_check import KeyFilesCheck
from broker.maintenance.queue_blocks_check import QueueBlocksCheck
from simulator.engine.disk import Fault, SimulatedFileSystem
from store.errors import DerivedDamageError, DiskFullError
from store.index.block_seals import UNKNOWN
from store.index.key_file import IndexFile
from store.index.key_index import KeyIndex
from store.index.queue_rows import ROWS_PER_FILE
from store.index.queue_tails import Tails, amend_tails, read_tails
from store.log.entry import EntryKind, build_entry
from store.message.batch import decode_batch
from store.state.machine_state import MachineState, decode_machine_state
from tests.store import sample_replica

READ_BYTES = 1 << 20


def restore(replica: sample_replica.Replica) -> None:
    """As a broker does that starts."""
    checkpoint = replica.store.recovered.checkpoint
    assert checkpoint is not None
    replica.queues.restore(
        (each.topic, each.queue_id, each.first_offset, each.end_offset)
        for each in decode_machine_state(checkpoint.state).queues
    )


def restored(
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[SimulatedFileSystem, sample_replica.Replica]:
    """A disk with the sample replica, whose ConsumeQueues have one file each, and its broker."""
    monkeypatch.setattr(sample_replica, "ROWS_PER_FILE", ROWS_PER_FILE)
    fs = SimulatedFileSystem(Random(1))
    sample_replica.write_replica(fs)
    replica = sample_replica.Replica(fs)
    restore(replica)
    return fs, replica


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


@pytest.mark.parametrize("begin", [0, 49_000])
def test_a_check_deep_in_the_log_passes_by_what_lies_before(begin: int) -> None:
    """Between every two files of the key index is a gap: thousands of them on a long log."""
    index = KeyIndex(SimulatedFileSystem(Random(1)), "/data/keyindex")
    index._files = [
        IndexFile(f"/data/keyindex/{start:020d}", start, start + 5, 0, 0, 1, 0)
        for start in range(0, 50_000, 10)
    ]
    check = KeyFilesCheck(index)
    check.begin_pass(MachineState(b"", [], {}, 0, 50_000))
    check.begin_run(begin)
    entry = build_entry(EntryKind.NO_OP, 7, 1, 49_990, 0, [])
    assert check.take(entry, b"") == []


class Keys:
    """A replica with files of the key index, and its check."""

    def __init__(self) -> None:
        self.fs = SimulatedFileSystem(Random(1))
        directory = sample_replica.write_replica(self.fs).directory
        replica = sample_replica.Replica(self.fs)
        restore(replica)
        self.store = replica.store
        self.index = KeyIndex(self.fs, f"{directory}/keyindex")
        self.check = DerivedFilesCheck(
            self.store, self.index, replica.queues.get, save_tails=lambda _tails: None
        )
        self.open()

    def open(self) -> None:
        """As a broker does that starts."""
        checkpoint = self.store.recovered.checkpoint
        assert checkpoint is not None
        self.index.restore(checkpoint.end_position)

    def look(self, *damaged: int) -> list[str]:
        """A pass over the log, of which these entries cannot be read."""
        self.check.begin_pass()
        entries = self.store.read_entries(0, self.store.last_index, READ_BYTES)
        whole = [entry for entry in entries if entry.index not in damaged]
        return self.check.check(whole) + self.check.end_pass()


@pytest.mark.parametrize("place", [0, -1])
def test_a_file_of_the_key_index_that_is_missing_is_made_again(place: int) -> None:
    keys = Keys()
    files = keys.index.files
    assert len(files) > 1
    before = keys.fs.visible_bytes(files[place].path)
    keys.fs.vanish(files[place].path)
    keys.open()
    assert keys.index.files != files
    assert keys.look() == [f"{files[place].path}: the file is missing"]
    assert keys.index.files == files
    assert keys.fs.visible_bytes(files[place].path) == before
    assert keys.look() == []


def test_a_file_whose_flush_is_just_ending_is_not_missing() -> None:
    """Its checkpoint is saved before the index hears of the file."""
    keys = Keys()
    newest = keys.index.files[-1]
    entries = keys.store.read_entries(0, keys.store.last_index, READ_BYTES)
    rows = b"".join(
        bytes(decode_batch(entry.body).key_rows)
        for entry in entries
        if entry.kind is EntryKind.DATA and newest.first_position <= entry.end
    )
    first = rows.index(newest.first_position.to_bytes(8, "big")) - 4
    keys.index.remake(newest.first_position, newest.last_position + 1, b"")
    keys.index.append(rows[first:])
    flush = keys.index.begin_flush()
    assert flush is not None
    flush.run()
    assert keys.look() == []
    flush.finish()
    assert keys.index.files[-1].first_position == newest.first_position
    assert keys.look() == []


def test_rows_of_an_entry_that_was_damaged_have_a_place_once_it_is_whole_again() -> None:
    """Until then their range of the log has no file."""
    keys = Keys()
    lost, *others = keys.index.files
    entries = keys.store.read_entries(0, keys.store.last_index, READ_BYTES)
    with_keys = [
        entry.index
        for entry in entries
        if entry.kind is EntryKind.DATA
        and entry.position < lost.last_position
        and len(decode_batch(entry.body).key_rows)
    ]
    assert len(with_keys) > 2
    keys.fs.vanish(lost.path)
    keys.open()
    assert keys.look(with_keys[1]) == []
    assert keys.look() == [f"{lost.path}: the file is missing"]
    assert keys.look() == []
    made = [file for file in keys.index.files if file not in others]
    assert sum(file.count for file in made) == lost.count
    assert max(file.last_position for file in made) == lost.last_position


@pytest.mark.parametrize("byte", [8, 15, 16, 27, 31, 35, 36, 40, 55])
def test_a_file_that_is_not_whole_is_pending_until_it_is_made_again(byte: int) -> None:
    keys = Keys()
    file = keys.index.files[0]
    before = keys.fs.visible_bytes(file.path)
    keys.fs.flip_bit(file.path, byte, 3)
    keys.open()
    wanted = int.from_bytes(before[40:44], "big")
    with pytest.raises(DerivedDamageError):
        keys.index.lookup(wanted, 0, 1 << 50, 1000)
    (told,) = keys.look()
    assert told.startswith(file.path)
    assert keys.index.files[0] == file
    assert keys.index.lookup(wanted, 0, 1 << 50, 1000)
    assert keys.fs.visible_bytes(file.path) == before
    assert keys.look() == []


def test_rows_of_an_entry_that_has_expired_in_part_are_made_again() -> None:
    keys = Keys()
    lost = keys.index.files[0]
    keys.fs.vanish(lost.path)
    keys.open()
    keys.index.expire(lost.last_position)
    assert len(keys.look()) == 1
    (made,) = [file for file in keys.index.files if file.first_position <= lost.last_position]
    assert made.last_position == lost.last_position
    assert made.count > 1


def test_rows_that_no_file_has_stay_away_where_they_have_expired() -> None:
    keys = Keys()
    end = keys.index.files[0].last_position + 1
    keys.index.expire(end)
    keys.index.release(end)
    left = keys.index.files
    assert keys.look() == []
    assert keys.index.files == left


def test_a_damaged_file_whose_records_have_all_expired_goes() -> None:
    keys = Keys()
    lost, *others = keys.index.files
    keys.fs.flip_bit(lost.path, 40)
    keys.fs.flip_bit(lost.path, 12)
    keys.open()
    keys.index.expire(others[0].first_position)
    with pytest.raises(DerivedDamageError):
        keys.index.lookup(1, 0, 1 << 50, 1000)
    assert keys.look() == []
    assert not keys.fs.exists(lost.path)
    assert keys.index.files == others
    keys.index.lookup(1, 0, 1 << 50, 1000)


def test_files_that_overlap_after_a_crash_are_made_again_as_one() -> None:
    """A process made one file of two ranges, and died before it removed the second old file."""
    keys = Keys()
    first, second, *others = keys.index.files
    rows = b"".join(
        bytes(decode_batch(entry.body).key_rows)
        for entry in keys.store.read_entries(0, keys.store.last_index, READ_BYTES)
        if entry.kind is EntryKind.DATA and entry.position < second.last_position
    )
    both = keys.index.write(rows)
    assert (both.path, both.count) == (first.path, first.count + second.count)
    keys.open()
    with pytest.raises(DerivedDamageError):
        keys.index.lookup(1, 0, 1 << 50, 1000)
    (told,) = keys.look()
    assert told.startswith(second.path)
    assert keys.index.files == [both, *others]
    assert not keys.fs.exists(second.path)
    keys.index.lookup(1, 0, 1 << 50, 1000)
    assert keys.look() == []
