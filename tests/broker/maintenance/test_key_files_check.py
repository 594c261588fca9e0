"""The check of the key index against the log."""

from __future__ import annotations

from random import Random

import pytest

from broker.maintenance.derived_files_check import DerivedFilesCheck
from broker.maintenance.key_files_check import KeyFilesCheck
from simulator.engine.disk import SimulatedFileSystem
from store.errors import DerivedDamageError
from store.index.key_file import IndexFile
from store.index.key_index import KeyIndex
from store.log.entry import EntryKind, build_entry
from store.message.batch import decode_batch
from store.state.machine_state import MachineState
from tests.broker.maintenance.started_replicas import READ_BYTES, restore
from tests.store import sample_replica


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
