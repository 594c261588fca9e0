"""Blocks that the disk cannot read: never taken for absent or torn, and written as a whole."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from simulator.disk import SimulatedFileSystem
from store.consumequeue import ConsumeQueue, OpenFiles
from store.entry import HEADER_SIZE, Entry
from store.entryindex import ROW_SIZE
from store.errors import DamagedError, DamagedLogError, FatalDiskError, StoreError
from store.filesystem import BLOCK_SIZE
from store.keyindex import HEADER, KEY_ROW_SIZE, KeyIndex
from store.layout import segment_name, segment_start
from store.osfiles import OsFileSystem
from store.refill import Plan, Refill
from store.replica import ReplicaStore, StoreConfig
from store.slotfile import SlotFile
from store.wholeblocks import reach, read_readable, write_over
from tests.store.steps import (
    DIRECTORY,
    Writer,
    contents,
    data_of,
    open_store,
    save_mark,
    simulated,
)

SEGMENT = 5 * BLOCK_SIZE
TERM_MAX = 1 << 62
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


def mend_all(store: ReplicaStore, writer: Writer, max_bytes: int = 2000) -> list[int]:
    """As the scrub does, from a peer that has all; returns what was damaged."""
    found, index = [], store.first_index
    while index <= store.last_index:
        checked = store.check_entries(index, store.last_index, max_bytes)
        rows = [place for place in checked.damage if store.mend_row(place)]
        if rows:
            continue
        for place in checked.damage:
            store.mend_entry(writer.entries[place])
            found.append(place)
        index = checked.next_index
    return found


# --- reading and writing a file


def block_file(fs: SimulatedFileSystem, size: int) -> bytes:
    data = bytes(1 + at % 251 for at in range(size))
    file = fs.open("/f", create=True)
    file.pwrite(data, 0)
    file.datasync()
    return data


def test_what_lies_before_a_block_that_cannot_be_read_is_read() -> None:
    fs = simulated()
    data = block_file(fs, 4 * BLOCK_SIZE)
    fs.lose_sector("/f", 2 * BLOCK_SIZE + 5)
    file = fs.open("/f")
    assert read_readable(file, 9 * BLOCK_SIZE, 10) == (data[10 : 2 * BLOCK_SIZE], True)
    assert read_readable(file, BLOCK_SIZE, BLOCK_SIZE) == (data[BLOCK_SIZE : 2 * BLOCK_SIZE], False)
    assert read_readable(file, 10, 2 * BLOCK_SIZE + 9) == (b"", True)
    assert read_readable(file, 9 * BLOCK_SIZE, 3 * BLOCK_SIZE) == (data[3 * BLOCK_SIZE :], False)


@pytest.mark.parametrize("file_size", [3 * BLOCK_SIZE, 2 * BLOCK_SIZE + 700])
@pytest.mark.parametrize(
    ("offset", "size", "kept"),
    [
        (2 * BLOCK_SIZE + 100, 50, range(2 * BLOCK_SIZE)),
        (BLOCK_SIZE + 100, BLOCK_SIZE, range(2 * BLOCK_SIZE)),
        (2 * BLOCK_SIZE, 50, range(2 * BLOCK_SIZE)),
        (2 * BLOCK_SIZE + 690, 10, range(2 * BLOCK_SIZE)),
    ],
)
def test_a_block_is_written_as_a_whole_and_keeps_nothing_else(
    file_size: int, offset: int, size: int, kept: range
) -> None:
    fs = simulated()
    data = bytearray(block_file(fs, file_size))
    fs.lose_sector("/f", 2 * BLOCK_SIZE + 1)
    file = fs.open("/f")
    with pytest.raises(OSError, match="Input/output error"):
        file.pwrite(b"\xff" * size, offset)
    write_over(file, b"\xff" * size, offset)
    file.datasync()
    expected = data[: len(kept)] + bytes(file_size - len(kept))
    expected[offset : offset + size] = b"\xff" * size
    fs.power_loss()
    assert fs.open("/f").pread(2 * file_size, 0) == expected


def test_where_all_can_be_read_nothing_but_the_bytes_is_written(tmp_path: Path) -> None:
    fs, path = OsFileSystem(), str(tmp_path / "f")
    file = fs.open(path, create=True)
    file.pwrite(b"x" * 3 * BLOCK_SIZE, 0)
    assert reach(file, 30, BLOCK_SIZE - 10) == (BLOCK_SIZE - 10, BLOCK_SIZE + 20)
    write_over(file, b"y" * 30, BLOCK_SIZE - 10)
    data = file.pread(9 * BLOCK_SIZE, 0)
    assert data == b"x" * (BLOCK_SIZE - 10) + b"y" * 30 + b"x" * (2 * BLOCK_SIZE - 20)


def test_an_error_that_says_nothing_of_the_bytes_is_raised() -> None:
    fs = simulated()
    block_file(fs, BLOCK_SIZE)

    class NoMemory:
        def pread(self, size: int, position: int) -> bytes:
            raise OSError(errno.ENOMEM, f"no memory for {size} bytes from {position}")

    for read in (lambda file: read_readable(file, 10, 0), lambda file: reach(file, 10, 5)):
        with pytest.raises(OSError, match="no memory"):
            read(NoMemory())


# --- opening a replica


@SIZES
def test_a_log_that_cannot_be_read_below_its_mark_names_the_entry(segment_size: int) -> None:
    fs, writer = written(segment_size)
    lose(fs, writer.entries[40], segment_size)
    before = {path: fs.visible_bytes(path) for path in fs.files() if "/commitlog/" in path}
    with pytest.raises(DamagedLogError, match="the disk cannot read it") as raised:
        open_store(fs, config(segment_size))
    index = raised.value.index
    assert CHECKPOINT < index <= 40
    assert raised.value.end == writer.entries[index - 1].end
    assert raised.value.chain_crc == writer.entries[index - 1].chain_crc
    assert {path: fs.visible_bytes(path) for path in before} == before


@SIZES
@pytest.mark.parametrize("lost", range(MARKED + 1, COUNT))
def test_what_cannot_be_read_above_the_mark_is_lost_and_not_torn(
    segment_size: int, lost: int
) -> None:
    """It may have been confirmed: the directory becomes another disk before anything is cut."""
    fs, writer = written(segment_size)
    lose(fs, writer.entries[lost], segment_size)
    try:
        store = open_store(fs, config(segment_size, incarnation=8))
    except DamagedLogError as error:
        damage = error
        store = None
    if store is None:  # the block begins below the mark
        assert damage.index <= MARKED
        return
    assert store.recovered.incarnation == 8
    assert MARKED <= store.last_index < lost
    fs.power_loss()
    again = open_store(fs, config(segment_size, incarnation=9))
    assert again.recovered.incarnation == 8
    assert again.last_index == store.last_index
    mend_all(again, writer)
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
    store.prepare_next()
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
    store.prepare_next()
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
        SlotFile.open(fs, f"{DIRECTORY}/state/vote")


@pytest.mark.parametrize("name", ["plan", "checkpoint"])
def test_a_refill_that_cannot_be_read_is_begun_anew(name: str) -> None:
    fs, writer = written()
    open_store(fs, config()).close()
    (checkpoint,) = (path for path in fs.files() if "/state/checkpoint-" in path)
    data = fs.visible_bytes(checkpoint)
    plan = Plan(0, 0, CHECKPOINT)
    sizes = {"segment_size": SEGMENT, "min_free_bytes": 0}
    Refill.begin(fs, DIRECTORY, plan, data, TERM_MAX, **sizes).append(writer.entries[:5])
    assert Refill.resume(fs, DIRECTORY, **sizes) is not None
    fs.lose_sector(f"{DIRECTORY}/refill/{name}", 0)
    assert Refill.resume(fs, DIRECTORY, **sizes) is None
    Refill.begin(fs, DIRECTORY, plan, data, TERM_MAX, **sizes)
    assert Refill.resume(fs, DIRECTORY, **sizes) is not None


# --- putting back


@SIZES
@pytest.mark.parametrize("lost", range(0, MARKED - 12, 7))
def test_entries_of_a_block_that_cannot_be_read_are_put_back(segment_size: int, lost: int) -> None:
    fs, writer = written(segment_size)
    store = open_store(fs, config(segment_size))
    lose(fs, writer.entries[lost], segment_size)
    mended = mend_all(store, writer)
    assert lost in mended
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
        store.mend_entry(writer.entries[index])
    assert not isinstance(raised.value, FatalDiskError)
    store.append(writer.make_many(60, size=400))
    store.sync()
    assert save_mark(store, writer.entries[-1], len(writer.entries) - 1)
    mend_all(store, writer)
    assert contents(store) == data_of(writer.entries)


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
    mended = mend_all(store, writer)
    assert (
        not mended or place < BLOCK_SIZE // ROW_SIZE
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
    assert entry.index in mend_all(store, writer)
    assert contents(store) == data_of(writer.entries)


# --- what is derived


def key_files(count: int = 1000) -> tuple[SimulatedFileSystem, KeyIndex, str]:
    fs = simulated()
    index = KeyIndex(fs, "/keyindex")
    rows = bytearray()
    for number in range(count):
        rows += number.to_bytes(4, "big") + (100 + number).to_bytes(8, "big") + bytes(4)
    index.append(bytes(rows))
    flush = index.begin_flush()
    assert flush is not None
    flush.run()
    flush.finish()
    return fs, index, f"/keyindex/{100:020d}"


ALWAYS = (0, 1 << 40)


@pytest.mark.parametrize("cut", [0, 20, 40, 41, 44, 56, 8040, 12000, 16039])
def test_a_key_file_cut_while_it_is_in_use_never_says_that_there_is_no_such_key(cut: int) -> None:
    fs, index, path = key_files()
    fs.cut(path, cut)
    told = 0
    for number in range(1000):
        try:
            assert index.lookup(number, *ALWAYS, 10) == [100 + number]
        except DamagedError:
            told += 1
    assert told >= 1000 - max(0, cut - HEADER.size) // KEY_ROW_SIZE


@pytest.mark.parametrize("byte", [0, 100, 5000, 9000, 16000])
def test_a_key_file_with_a_block_that_cannot_be_read_never_does_either(byte: int) -> None:
    fs, index, path = key_files()
    fs.lose_sector(path, byte)
    told = 0
    for number in range(1000):
        try:
            assert index.lookup(number, *ALWAYS, 10) == [100 + number]
        except DamagedError:
            told += 1
    assert told
    if byte < HEADER.size:
        with pytest.raises(DamagedError, match="cannot be read"):
            KeyIndex(fs, "/keyindex").restore(1 << 40)


@pytest.mark.parametrize(("covered", "first"), [(30, 0), (10, 0), (10, 10)])
def test_a_queue_to_which_no_rows_can_be_added_is_damaged(covered: int, first: int) -> None:
    """Found as it is restored, so that it is made again, and not when rows must be written."""
    fs = simulated()
    queue = ConsumeQueue(OpenFiles(fs), "/queue")
    queue.append(0, bytes(range(20)) * 30)
    flush = queue.begin_flush()
    assert flush is not None
    flush.run()
    fs.lose_sector(f"/queue/{0:020d}", 0)
    with pytest.raises(DamagedError, match="cannot be read"):
        ConsumeQueue(OpenFiles(fs), "/queue").restore(first, covered)


def test_rows_of_which_a_checkpoint_covers_none_are_removed_readable_or_not() -> None:
    fs = simulated()
    queue = ConsumeQueue(OpenFiles(fs), "/queue")
    queue.append(0, bytes(range(20)) * 30)
    flush = queue.begin_flush()
    assert flush is not None
    flush.run()
    fs.lose_sector(f"/queue/{0:020d}", 0)
    queue.restore(0, 0)
    assert not fs.exists(f"/queue/{0:020d}")
