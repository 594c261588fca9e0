"""Damage below the mark is named and left alone; a torn tail above it is cut."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.engine.disk import Fault, SimulatedFileSystem
from store.errors import DamagedError
from tests.store.small_logs import (
    CONFIG,
    DIRECTORY,
    Writer,
    contents,
    data_of,
    open_store,
    save_mark,
    simulated,
)
from tests.support.search_effort import searching

STATE = f"{DIRECTORY}/state"
LOG = f"{DIRECTORY}/commitlog"
ENTRIES = 14
MARKED = 8


def marked_log() -> tuple[SimulatedFileSystem, Writer]:
    """A stopped replica with 14 synced entries, of which the first 9 are below the mark."""
    fs, writer = simulated(), Writer()
    store = open_store(fs)
    store.save_hard_state(1, "n0")
    store.append(writer.make_many(ENTRIES))
    store.sync()
    assert save_mark(store, writer.entries[MARKED], commit_index=MARKED)
    store.close()
    return fs, writer


def place(position: int) -> tuple[str, int]:
    start = position - position % 400
    return f"{LOG}/{start:020d}", position - start


def snapshot(fs: SimulatedFileSystem) -> dict[str, bytes]:
    return {path: fs.visible_bytes(path) for path in fs.files() if path.startswith(LOG)}


@searching(150)
@given(index=st.integers(0, MARKED), bit=st.integers(0, 78 * 8 - 1))
def test_a_flipped_bit_below_the_mark_is_damage_named_by_file_and_byte(
    index: int, bit: int
) -> None:
    fs, writer = marked_log()
    path, byte = place(writer.entries[index].position)
    fs.flip_bit(path, byte + bit // 8, bit % 8)
    before = snapshot(fs)
    with pytest.raises(DamagedError) as caught:
        open_store(fs)
    assert (caught.value.path, caught.value.position) == (path, byte)
    assert snapshot(fs) == before


@searching(150)
@given(index=st.integers(MARKED + 1, ENTRIES - 1), bit=st.integers(0, 78 * 8 - 1))
def test_a_flipped_bit_above_the_mark_cuts_the_log_there(index: int, bit: int) -> None:
    fs, writer = marked_log()
    path, byte = place(writer.entries[index].position)
    fs.flip_bit(path, byte + bit // 8, bit % 8)
    store = open_store(fs)
    assert contents(store) == data_of(writer.entries[:index])
    assert store.recovered.torn_bytes_cut > 0
    writer.cut(index)
    store.append(writer.make_many(9, size=44))
    store.sync()
    fs.power_loss(keep=0.0)
    assert contents(open_store(fs)) == data_of(writer.entries)


@pytest.mark.parametrize("index", range(MARKED + 1, ENTRIES))
def test_cutting_a_torn_tail_leaves_nothing_but_zeros_behind_the_end(index: int) -> None:
    fs, writer = marked_log()
    path, byte = place(writer.entries[index].position)
    fs.flip_bit(path, byte + 50)
    end = open_store(fs).end_position
    behind = b"".join(
        data[max(0, end - int(path.rpartition("/")[2])) :] for path, data in snapshot(fs).items()
    )
    assert behind == bytes(len(behind))


def test_an_entry_whose_term_falls_is_no_part_of_the_log() -> None:
    fs, writer = marked_log()
    entry = writer.make(term=0)
    path, byte = place(entry.position)
    fs.overwrite(path, entry.data, byte)
    store = open_store(fs)
    assert store.last_index == ENTRIES - 1
    assert store.recovered.torn_bytes_cut > 0


def test_what_recovery_found_whole_is_protected_from_then_on() -> None:
    fs, writer = marked_log()
    open_store(fs).close()
    path, byte = place(writer.entries[ENTRIES - 1].position)
    fs.flip_bit(path, byte + 50)
    with pytest.raises(DamagedError, match=f"entry {ENTRIES - 1} is not whole"):
        open_store(fs)


def test_damage_says_what_was_found_and_what_was_durable() -> None:
    fs, writer = marked_log()
    path, byte = place(writer.entries[3].position)
    fs.flip_bit(path, byte + 60)
    with pytest.raises(DamagedError, match=r"body CRC.*entry 3 is not whole"):
        open_store(fs)


def test_a_missing_segment_below_the_mark_is_damage() -> None:
    fs, _ = marked_log()
    fs.vanish(f"{LOG}/{400:020d}")
    with pytest.raises(DamagedError, match=f"{400:020d}.*missing"):
        open_store(fs, replace(CONFIG, alone=True))
    with pytest.raises(DamagedError, match=f"{400:020d}, byte 0: the file ends here"):
        open_store(fs)


def test_a_missing_first_segment_is_damage() -> None:
    fs, _ = marked_log()
    fs.vanish(f"{LOG}/{0:020d}")
    with pytest.raises(DamagedError, match=f"{0:020d}.*missing"):
        open_store(fs, replace(CONFIG, alone=True))
    with pytest.raises(DamagedError, match=f"{0:020d}.*cut short.*entry 0 is not whole"):
        open_store(fs)


def test_a_segment_cut_short_below_the_mark_is_damage() -> None:
    fs, writer = marked_log()
    path, byte = place(writer.entries[MARKED].position)
    fs.cut(path, byte + 20)
    with pytest.raises(DamagedError, match=f"byte {byte + 20}: the file ends here"):
        open_store(fs)


def test_two_swapped_segments_are_damage() -> None:
    fs, _ = marked_log()
    first, second = f"{LOG}/{0:020d}", f"{LOG}/{400:020d}"
    one, two = fs.visible_bytes(first), fs.visible_bytes(second)
    fs.overwrite(first, two, 0)
    fs.overwrite(second, one, 0)
    with pytest.raises(DamagedError):
        open_store(fs)


def test_a_stale_sector_below_the_mark_is_damage() -> None:
    fs, writer = marked_log()
    path, byte = place(writer.entries[6].position)
    fs.overwrite(path, bytes(78), byte)
    with pytest.raises(DamagedError, match="magic: expected 1, 2 or 3, found "):
        open_store(fs)


def test_a_whole_log_of_another_history_is_damage() -> None:
    fs, _ = marked_log()
    other = Writer()
    other.make_many(ENTRIES, size=30)
    other.cut(0)
    for n in range(ENTRIES):
        other.make(bytes([n + 1]) * 30)
    for path in snapshot(fs):
        fs.overwrite(path, bytes(400), 0)
    for entry in other.entries:
        path, byte = place(entry.position)
        fs.overwrite(path, entry.data, byte)
    padding = bytes.fromhex("ffffffff0000000a")
    fs.overwrite(f"{LOG}/{0:020d}", padding, 390)
    fs.overwrite(f"{LOG}/{400:020d}", padding, 390)
    with pytest.raises(DamagedError, match="not the entry that the durable mark names"):
        open_store(fs)


@pytest.mark.parametrize("name", ["vote", "mark"])
def test_a_missing_state_file_is_damage_and_not_a_new_node(name: str) -> None:
    fs, _ = marked_log()
    fs.vanish(f"{STATE}/{name}")
    with pytest.raises(DamagedError, match=f"{name}.*missing.*; replace the node"):
        open_store(fs)


def test_a_missing_format_file_is_damage_where_there_is_a_log() -> None:
    fs, _ = marked_log()
    fs.vanish(f"{STATE}/format")
    with pytest.raises(DamagedError, match=r"format.*missing.*; replace the node"):
        open_store(fs)


@pytest.mark.parametrize("name", ["vote", "mark"])
@pytest.mark.parametrize("slot", [0, 1])
def test_one_rotten_slot_loses_nothing_and_is_repaired(name: str, slot: int) -> None:
    fs, writer = marked_log()
    fs.flip_bit(f"{STATE}/{name}", slot * 512 + 22)
    store = open_store(fs)
    assert (store.recovered.term, store.recovered.vote) == (1, "n0")
    assert store.recovered.commit_index == MARKED
    data = fs.visible_bytes(f"{STATE}/{name}")
    assert data[:512] == data[512:]
    assert contents(store) == data_of(writer.entries)


@pytest.mark.parametrize("name", ["vote", "mark"])
def test_two_rotten_slots_are_damage(name: str) -> None:
    fs, _ = marked_log()
    for slot in (0, 1):
        fs.flip_bit(f"{STATE}/{name}", slot * 512 + 22)
    with pytest.raises(DamagedError, match=f"{name}.*neither.*; replace the node"):
        open_store(fs)


def test_a_vote_older_than_the_log_is_damage() -> None:
    fs, writer = marked_log()
    old = fs.visible_bytes(f"{STATE}/vote")
    store = open_store(fs)
    store.save_hard_state(2, "n1")
    store.append(writer.make_many(1, term=2))
    store.sync()
    store.close()
    fs.overwrite(f"{STATE}/vote", old, 0)
    with pytest.raises(DamagedError, match=r"vote.*term 1 is below"):
        open_store(fs)


def checkpointed_log() -> tuple[SimulatedFileSystem, Writer]:
    fs, writer = simulated(), Writer()
    store = open_store(fs)
    store.save_hard_state(1, "n0")
    store.append(writer.make_many(20))
    store.sync()
    for index in (9, 15):
        assert store.save_checkpoint(writer.checkpoint(index))
    store.close()
    return fs, writer


def test_a_rotten_newest_checkpoint_is_told_and_the_one_before_is_used() -> None:
    fs, writer = checkpointed_log()
    fs.flip_bit(f"{STATE}/checkpoint-{15:020d}", 30)
    store = open_store(fs)
    assert store.recovered.checkpoint == writer.checkpoint(9)
    assert store.recovered.tail == writer.entries[10:]
    assert [error.path for error in store.recovered.lost] == [f"{STATE}/checkpoint-{15:020d}"]


def test_without_any_whole_checkpoint_a_whole_log_is_read_from_its_start() -> None:
    fs, writer = checkpointed_log()
    for index in (9, 15):
        fs.flip_bit(f"{STATE}/checkpoint-{index:020d}", 20)
    store = open_store(fs)
    assert store.recovered.checkpoint is None
    assert store.recovered.tail == writer.entries


def test_without_any_whole_checkpoint_a_log_that_expired_in_part_is_damage() -> None:
    fs, writer = checkpointed_log()
    store = open_store(fs)
    store.expire(writer.entries[5].position)
    store.close()
    for index in (9, 15):
        fs.flip_bit(f"{STATE}/checkpoint-{index:020d}", 20)
    with pytest.raises(DamagedError, match="begins at index 5 and no checkpoint"):
        open_store(fs)


@pytest.mark.parametrize("row", [3, 8, 15])
def test_an_entry_index_with_a_lost_or_short_file_is_made_again(row: int) -> None:
    for damage in ("vanish", "cut"):
        fs, writer = checkpointed_log()
        path = f"{DIRECTORY}/index/{row // 4 * 4 * 32:020d}"
        if damage == "vanish":
            fs.vanish(path)
        else:
            fs.cut(path, 70)
        store = open_store(fs)
        assert contents(store) == data_of(writer.entries)
        assert store.recovered.checkpoint == writer.checkpoint(15)
        assert store.recovered.tail == writer.entries[16:]


@given(byte=st.integers(0, 31), bit=st.integers(0, 7))
def test_no_flipped_bit_in_the_row_of_the_checkpoints_entry_keeps_a_node_from_its_start(
    byte: int, bit: int
) -> None:
    fs, writer = checkpointed_log()
    fs.flip_bit(f"{DIRECTORY}/index/{12 * 32:020d}", 3 * 32 + byte, bit)
    store = open_store(fs)
    assert store.recovered.checkpoint == writer.checkpoint(15)
    assert store.recovered.tail == writer.entries[16:]
    assert contents(store) == data_of(writer.entries)


@given(byte=st.integers(0, 31), bit=st.integers(0, 7))
def test_a_flipped_bit_in_the_entry_index_is_noticed_and_keeps_nobody_from_the_entry(
    byte: int, bit: int
) -> None:
    fs, writer = checkpointed_log()
    fs.flip_bit(f"{DIRECTORY}/index/{4 * 32:020d}", 32 + byte, bit)
    store = open_store(fs)
    assert store.read_entries(4, 6, 1000) == writer.entries[4:7]
    assert store.index_needs_repair


def test_a_flipped_bit_in_an_old_entry_is_damage_when_it_is_read() -> None:
    fs, writer = checkpointed_log()
    store = open_store(fs)
    path, byte = place(writer.entries[4].position)
    fs.flip_bit(path, byte + 50)
    with pytest.raises(DamagedError) as caught:
        store.read_entries(3, 6, 1000)
    assert (caught.value.path, caught.value.position) == (path, byte)


@pytest.mark.parametrize("byte", [15, 23, 31])
def test_a_flipped_index_term_or_position_is_damage_though_the_entry_before_is_not_read(
    byte: int,
) -> None:
    fs, writer = checkpointed_log()
    store = open_store(fs)
    path, start = place(writer.entries[4].position)
    fs.flip_bit(path, start + byte)
    with pytest.raises(DamagedError, match="differs from its row") as caught:
        store.read_entries(4, 4, 1000)
    assert (caught.value.path, caught.value.position) == (path, start)


def test_a_sector_that_cannot_be_read_is_damage_named_by_file_and_byte() -> None:
    fs, writer = checkpointed_log()
    store = open_store(fs)
    path, byte = place(writer.entries[4].position)
    fs.inject(Fault(1, errno.EIO, operations={"pread"}, path=path, lasting=True))
    with pytest.raises(DamagedError, match="cannot be read") as caught:
        store.read(writer.entries[4].position, 10)
    assert (caught.value.path, caught.value.position) == (path, byte)


def test_rows_of_the_entry_index_that_cannot_be_read_keep_nobody_from_the_entries() -> None:
    fs, writer = checkpointed_log()
    store = open_store(fs)
    lasting = Fault(1, errno.EIO, operations={"pread"}, path=f"{DIRECTORY}/index/", lasting=True)
    fs.inject(lasting)
    assert not store.check_entries(0, 19, 10_000).damage
    assert contents(store) == data_of(writer.entries)
    assert store.index_needs_repair
