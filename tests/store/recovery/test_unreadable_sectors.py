"""A log with blocks that the disk cannot read: never taken for absent or torn, and put back."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

from simulator.engine.disk import Fault, SimulatedFileSystem
from store.errors import DamagedError, FatalDiskError, StoreError
from store.io.filesystem import BLOCK_SIZE
from store.io.two_slot_file import TwoSlotFile
from store.log.entry import HEADER_SIZE, Entry
from store.log.entry_row import ROW_SIZE
from store.log.layout import segment_name, segment_start
from store.recovery.recovery import Recovery
from store.recovery.snapshot_install import InstallPlan, SnapshotInstall
from store.replica import ReplicaStore, StoreConfig
from tests.store.small_logs import (
    DIRECTORY,
    Writer,
    contents,
    data_of,
    open_store,
    save_mark,
    simulated,
)
from tests.support.search_effort import sample

SEGMENT = 5 * BLOCK_SIZE
ODD = 700
"""A segment that is smaller than a block."""

COUNT, CHECKPOINT, MARKED = 60, 20, 50
SIZES = pytest.mark.parametrize("segment_size", [SEGMENT, SEGMENT + 300, ODD])


def config(segment_size: int = SEGMENT, incarnation: int = 7) -> StoreConfig:
    return StoreConfig(
        "broker-a",
        "n0",
        segment_size,
        min_free_bytes=0,
        index_rows_per_file=1000,
        incarnation=incarnation,
        direct=True,
    )


def written(segment_size: int = SEGMENT) -> tuple[SimulatedFileSystem, Writer]:
    """A log behind its checkpoint and behind its mark, whose process has died."""
    fs, writer = simulated(), Writer(segment_size)
    store = open_store(fs, config(segment_size))
    store.save_hard_state(1, "n0")
    store.append(writer.make_many(COUNT, size=400 if segment_size > ODD else 100))
    store.sync()
    assert store.save_checkpoint(writer.checkpoint(CHECKPOINT))
    assert save_mark(store, writer.entries[MARKED], MARKED)
    fs.crash()
    return fs, writer


def lose(fs: SimulatedFileSystem, entry: Entry, segment_size: int = SEGMENT) -> None:
    """The block with the first byte of the entry."""
    start = segment_start(entry.position, segment_size)
    fs.lose_sector(f"{DIRECTORY}/commitlog/{segment_name(start)}", entry.position - start)


def repair_all(store: ReplicaStore, writer: Writer, max_bytes: int = 2000) -> list[int]:
    """As the scrub does, from a peer that has all; returns what was damaged."""
    found, index = [], store.first_index
    while index <= store.last_index:
        checked = store.check_entries(index, store.last_index, max_bytes)
        store.repair_index()
        if list(filter(store.repair_padding, checked.damage)):
            continue
        for place in checked.damage:
            store.repair_entry(writer.entries[place])
            found.append(place)
        index = checked.next_index
    return found


# --- opening a replica


@SIZES
def test_a_log_that_cannot_be_read_below_its_mark_names_the_entry(segment_size: int) -> None:
    fs, writer = written(segment_size)
    lose(fs, writer.entries[40], segment_size)
    before = {path: fs.visible_bytes(path) for path in fs.files() if "/commitlog/" in path}
    recovery = Recovery(fs, DIRECTORY, config(segment_size))
    hole = recovery.hole
    recovery.close()
    assert hole is not None
    assert CHECKPOINT < hole.index <= 40
    assert "cannot be read" in str(hole.error)
    assert f"entry {hole.index} is not whole" in str(hole.error)
    assert {path: fs.visible_bytes(path) for path in before} == before


@SIZES
@pytest.mark.parametrize("lost", range(MARKED + 1, COUNT))
def test_what_cannot_be_read_above_the_mark_is_lost_and_not_torn(
    segment_size: int, lost: int
) -> None:
    """It may have been confirmed: the directory becomes another disk before anything is cut."""
    fs, writer = written(segment_size)
    lose(fs, writer.entries[lost], segment_size)
    recovery = Recovery(fs, DIRECTORY, config(segment_size, incarnation=8))
    if recovery.hole is not None:  # the block begins below the mark
        assert recovery.hole.index <= MARKED
        return
    store = ReplicaStore(fs, DIRECTORY, recovery.finish())
    assert store.recovered.incarnation == 8
    assert MARKED <= store.last_index < lost
    fs.power_loss()
    again = open_store(fs, config(segment_size, incarnation=9))
    assert again.recovered.incarnation == 8
    assert again.last_index == store.last_index
    repair_all(again, writer)
    assert contents(again) == data_of(writer.entries[: again.last_index + 1])
    again.save_hard_state(1, "n0")
    again.append(writer.entries[again.last_index + 1 :])
    again.sync()
    assert contents(again) == data_of(writer.entries)


@pytest.mark.parametrize(
    "own", [replace(config(), alone=True), config(incarnation=0)], ids=["alone", "no incarnation"]
)
def test_who_has_nobody_to_get_it_back_from_does_not_start(own: StoreConfig) -> None:
    fs, writer = written()
    lose(fs, writer.entries[COUNT - 1])
    before = {path: fs.visible_bytes(path) for path in fs.files()}
    with pytest.raises(DamagedError, match="cannot read what was here"):
        open_store(fs, own)
    assert {path: fs.visible_bytes(path) for path in fs.files()} == before


def test_zeros_behind_the_log_that_cannot_be_read_are_made_again() -> None:
    fs, writer = written()
    store = open_store(fs, config())
    store.preallocate_next()
    store.close()
    start = segment_start(writer.end, SEGMENT)
    path = f"{DIRECTORY}/commitlog/{segment_name(start)}"
    behind = writer.end - start + 2 * BLOCK_SIZE
    assert behind < len(fs.visible_bytes(path))
    fs.lose_sector(path, behind)
    store = open_store(fs, config(incarnation=8))
    assert store.recovered.incarnation == 7
    assert store.last_index == COUNT - 1
    fs.power_loss()
    assert fs.open(path).pread(1, behind) == b"\0"


def test_what_lies_behind_the_padding_of_a_segment_need_not_be_read() -> None:
    fs, writer = simulated(), Writer(SEGMENT)
    store = open_store(fs, config())
    store.save_hard_state(1, "n0")
    store.append(writer.make_many(3, size=400))
    store.preallocate_next()
    store.append([writer.make(b"x" * (SEGMENT - 200 - HEADER_SIZE))])
    store.append(writer.make_many(3, size=400))
    store.sync()
    fs.crash()
    padded = writer.entries[2].end
    assert segment_start(writer.entries[3].position, SEGMENT) == SEGMENT
    fs.lose_sector(f"{DIRECTORY}/commitlog/{segment_name(0)}", padded + BLOCK_SIZE)
    store = open_store(fs, config(incarnation=8))
    assert store.recovered.incarnation == 7
    assert contents(store) == data_of(writer.entries)


def test_the_last_entry_of_a_checkpoint_that_cannot_be_read_says_that_the_end_is_lost() -> None:
    fs, writer = simulated(), Writer(SEGMENT)
    store = open_store(fs, config())
    store.save_hard_state(1, "n0")
    store.append(writer.make_many(COUNT, size=400))
    store.sync()
    assert store.save_checkpoint(writer.checkpoint(COUNT - 1))
    store.close()
    lose(fs, writer.entries[-1])
    assert open_store(fs, config(incarnation=8)).recovered.incarnation == 8


@pytest.mark.parametrize("part", ["index", "newest checkpoint"])
def test_what_is_kept_of_the_log_beside_it_is_made_again_or_left_for_an_older_one(
    part: str,
) -> None:
    fs, writer = written()
    store = open_store(fs, config())
    assert store.save_checkpoint(writer.checkpoint(CHECKPOINT + 9))
    store.close()
    paths = [path for path in fs.files() if "/index/" in path or "/checkpoint-" in path]
    fs.lose_sector(
        next(path for path in paths if "/index/" in path) if part == "index" else paths[-1], 9
    )
    store = open_store(fs, config())
    checkpoint = store.recovered.checkpoint
    assert checkpoint is not None
    assert checkpoint.index == (CHECKPOINT if part != "index" else CHECKPOINT + 9)
    assert contents(store) == data_of(writer.entries)
    store.close()
    fs.power_loss()
    assert contents(open_store(fs, config())) == data_of(writer.entries)


def test_a_vote_that_cannot_be_read_keeps_the_replica_closed_and_says_where() -> None:
    fs, _ = written()
    fs.lose_sector(f"{DIRECTORY}/state/vote", 0)
    with pytest.raises(DamagedError, match=r"state/vote, byte 0: cannot be read"):
        open_store(fs, config())
    with pytest.raises(DamagedError, match="cannot be read"):
        TwoSlotFile.open(fs, f"{DIRECTORY}/state/vote")


@pytest.mark.parametrize("name", ["plan", "checkpoint"])
def test_a_refill_that_cannot_be_read_is_begun_anew(name: str) -> None:
    fs, writer = written()
    open_store(fs, config()).close()
    (checkpoint,) = (path for path in fs.files() if "/state/checkpoint-" in path)
    data = fs.visible_bytes(checkpoint)
    plan = InstallPlan(0, 0, CHECKPOINT)
    sizes = {"segment_size": SEGMENT, "min_free_bytes": 0}
    SnapshotInstall.begin(fs, DIRECTORY, plan, data, term_max=1, **sizes).append(writer.entries[:5])
    assert SnapshotInstall.resume(fs, DIRECTORY, **sizes) is not None
    fs.lose_sector(f"{DIRECTORY}/refill/{name}", 0)
    assert SnapshotInstall.resume(fs, DIRECTORY, **sizes) is None
    SnapshotInstall.begin(fs, DIRECTORY, plan, data, term_max=1, **sizes)
    assert SnapshotInstall.resume(fs, DIRECTORY, **sizes) is not None


# --- putting back


@SIZES
@pytest.mark.parametrize("lost", range(0, MARKED - 12, 7))
def test_entries_of_a_block_that_cannot_be_read_are_put_back(segment_size: int, lost: int) -> None:
    fs, writer = written(segment_size)
    store = open_store(fs, config(segment_size))
    lose(fs, writer.entries[lost], segment_size)
    repaired = repair_all(store, writer)
    assert lost in repaired
    fs.power_loss()
    assert contents(open_store(fs, config(segment_size))) == data_of(writer.entries)


def test_what_shares_a_block_with_the_end_of_the_log_waits_and_the_store_goes_on() -> None:
    """The block may get entries at any moment, and those in it are not known to be committed."""
    fs, writer = written()
    store = open_store(fs, config())
    store.append(writer.make_many(1, size=400))
    store.sync()
    lose(fs, writer.entries[-1])
    index = min(store.check_entries(0, COUNT, 1 << 20).damage)
    with pytest.raises(StoreError, match="shares a block that cannot be read") as raised:
        store.repair_entry(writer.entries[index])
    assert not isinstance(raised.value, FatalDiskError)
    store.append(writer.make_many(60, size=400))
    store.sync()
    assert save_mark(store, writer.entries[-1], len(writer.entries) - 1)
    repair_all(store, writer)
    assert contents(store) == data_of(writer.entries)


# --- a read that fails once


def one_read_fails(fs: SimulatedFileSystem, reads: int) -> Fault:
    return fs.inject(Fault(reads, operations=("pread",)))


@pytest.mark.parametrize("reads", sample(range(1, 60)))
def test_filling_a_hole_keeps_what_it_has_filled_though_a_read_fails_once(reads: int) -> None:
    fs, writer = written()
    first = writer.entries[CHECKPOINT + 3]
    start = segment_start(first.position, SEGMENT)
    path = f"{DIRECTORY}/commitlog/{segment_name(start)}"
    fs.overwrite(path, bytes(start + SEGMENT - first.position), first.position - start)
    recovery = Recovery(fs, DIRECTORY, config(incarnation=8))
    assert recovery.hole is not None
    fault = one_read_fails(fs, reads)
    recovery.fill(writer.entries[first.index : MARKED + 1])
    assert recovery.hole is None
    assert fault.hit
    assert contents(ReplicaStore(fs, DIRECTORY, recovery.finish())) == data_of(writer.entries)
    fs.power_loss()
    assert contents(open_store(fs, config())) == data_of(writer.entries)


@pytest.mark.parametrize("reads", range(1, 12))
def test_a_repair_costs_nothing_beside_the_entry_though_a_read_fails_once(reads: int) -> None:
    fs, writer = written()
    entry = writer.entries[9]
    start = segment_start(entry.position, SEGMENT)
    fs.flip_bit(f"{DIRECTORY}/commitlog/{segment_name(start)}", entry.position - start + 60)
    store = open_store(fs, config())
    one_read_fails(fs, reads)
    with suppress(StoreError):  # as a block may seem lost that is not: then nothing is written
        store.repair_entry(entry)
    fs.disarm()
    assert set(store.check_entries(0, COUNT - 1, 1 << 20).damage) <= {entry.index}
    store.repair_entry(entry)
    fs.power_loss()
    assert contents(open_store(fs, config())) == data_of(writer.entries)


@pytest.mark.parametrize("reads", range(1, 17))
def test_an_opening_loses_no_entry_though_a_read_fails_once(reads: int) -> None:
    fs, writer = written()
    one_read_fails(fs, reads)
    with suppress(DamagedError):  # a state file cannot be read: that start is refused
        assert open_store(fs, config()).recovered.incarnation == 7
    fs.power_loss()
    store = open_store(fs, config())
    assert store.recovered.incarnation == 7
    assert contents(store) == data_of(writer.entries)


# --- rows


@pytest.mark.parametrize("place", [0, 3, 100, 127, 128, 300])
def test_rows_that_cannot_be_read_are_made_again_from_the_log(place: int) -> None:
    fs, writer = simulated(), Writer(1 << 16)
    own = config(1 << 16)
    store = open_store(fs, own)
    store.save_hard_state(1, "n0")
    store.append(writer.make_many(400))
    store.sync()
    assert store.save_checkpoint(writer.checkpoint(390))
    (path,) = (path for path in fs.files() if "/index/" in path)
    fs.lose_sector(path, place * ROW_SIZE)
    repaired = repair_all(store, writer)
    assert (
        not repaired or place < BLOCK_SIZE // ROW_SIZE
    )  # nothing but a peer says where the first leads
    store.close()
    fs.power_loss()
    assert contents(open_store(fs, own)) == data_of(writer.entries)


def test_what_is_noted_as_being_put_back_and_cannot_be_read_is_left_for_the_scrub() -> None:
    fs, writer = written()
    entry = writer.entries[3]
    note = f"{DIRECTORY}/state/putback-{entry.position:020d}-{entry.size}"
    fs.open(note, create=True).close()
    lose(fs, entry)
    store = open_store(fs, config())
    assert not fs.exists(note)
    assert entry.index in repair_all(store, writer)
    assert contents(store) == data_of(writer.entries)
