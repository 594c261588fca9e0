"""A log that has lost its end to damage is told from one whose last writes were not finished."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.engine.disk import SimulatedFileSystem
from store.errors import DamagedError
from store.log.entry import HEADER_SIZE, PADDING_SIZE
from store.log.layout import next_position, segment_name, segment_start
from store.state.replication_evidence_file import ReplicationEvidenceFile, SavedEvidence
from tests.store.small_logs import CONFIG, DIRECTORY, Writer, open_store, save_mark, simulated

FIRST, OTHER, THIRD = (replace(CONFIG, incarnation=number) for number in (7, 8, 9))
COUNT = 20
KNOWN = 16
"""The last entry of the checkpoint; the next one lies in the same segment, and behind the mark."""


def log_beyond_what_is_known(
    checkpoint: int = KNOWN, count: int = COUNT
) -> tuple[SimulatedFileSystem, Writer]:
    fs, writer = simulated(), Writer()
    store = open_store(fs, FIRST)
    store.save_hard_state(1, "n0")
    store.append(writer.make_many(count))
    store.sync()
    assert store.save_checkpoint(writer.checkpoint(checkpoint))
    assert save_mark(store, writer.entries[KNOWN], KNOWN)
    fs.crash()  # the mark of an orderly end would cover everything
    return fs, writer


def path_of(position: int) -> str:
    return f"{DIRECTORY}/commitlog/{segment_name(segment_start(position, CONFIG.segment_size))}"


def cut_below_the_end(fs: SimulatedFileSystem, writer: Writer) -> None:
    known = writer.entries[KNOWN]
    assert path_of(known.position) == path_of(writer.entries[KNOWN + 1].position)
    fs.cut(path_of(known.position), known.position % CONFIG.segment_size + 5)


def test_a_log_cut_short_below_what_was_durable_is_another_disk_from_then_on() -> None:
    fs, writer = log_beyond_what_is_known()
    cut_below_the_end(fs, writer)
    store = open_store(fs, OTHER)
    assert store.recovered.incarnation == OTHER.incarnation
    assert store.last_index == KNOWN
    store.repair_entry(writer.entries[KNOWN])
    fs.power_loss()
    assert open_store(fs, THIRD).recovered.incarnation == OTHER.incarnation


def test_a_log_that_is_on_another_disk_knows_on_which_it_was() -> None:
    """The log itself may have lost the entry that says so."""
    fs, writer = log_beyond_what_is_known()
    held = SavedEvidence("n1", 5, 3)
    ReplicationEvidenceFile(fs, f"{DIRECTORY}/state", FIRST.owner).save([held])
    cut_below_the_end(fs, writer)
    store = open_store(fs, OTHER)
    assert store.recovered.held == (SavedEvidence("n0", FIRST.incarnation, -1), held)
    store.repair_entry(writer.entries[KNOWN])
    fs.power_loss()
    store = open_store(fs, THIRD)
    assert store.recovered.held == (SavedEvidence("n0", FIRST.incarnation, -1), held)
    assert store.recovered.incarnation == OTHER.incarnation


def test_that_is_durable_before_anybody_repairs_what_the_log_has_lost() -> None:
    fs, writer = log_beyond_what_is_known(checkpoint=KNOWN - 8)
    cut_below_the_end(fs, writer)
    with pytest.raises(DamagedError, match="is not whole"):
        open_store(fs, OTHER)
    fs.power_loss()
    entry = writer.entries[KNOWN]
    fs.overwrite(path_of(entry.position), entry.data, entry.position % CONFIG.segment_size)
    store = open_store(fs, THIRD)
    assert store.recovered.incarnation == OTHER.incarnation
    assert store.last_index == KNOWN


def test_a_segment_that_was_lost_and_is_made_anew_is_cut_short() -> None:
    fs, writer = log_beyond_what_is_known()
    path = path_of(writer.entries[KNOWN].position)
    fs.vanish(path)
    fs.open(path, create=True).close()
    assert open_store(fs, OTHER).recovered.incarnation == OTHER.incarnation


def test_a_log_whose_last_segment_holds_other_bytes_is_another_disk() -> None:
    fs, writer = log_beyond_what_is_known()
    fs.swap(path_of(0), path_of(writer.entries[KNOWN].position))
    store = open_store(fs, OTHER)
    assert store.recovered.incarnation == OTHER.incarnation
    assert store.last_index == KNOWN


@pytest.mark.parametrize("lost", [0, 30])
def test_an_unfinished_last_write_leaves_the_disk_what_it_was(lost: int) -> None:
    fs, writer = log_beyond_what_is_known()
    if lost:
        entry = writer.entries[KNOWN + 1]
        fs.cut(path_of(entry.position), entry.position % CONFIG.segment_size + lost)
    store = open_store(fs, OTHER)
    assert store.recovered.incarnation == FIRST.incarnation
    assert store.last_index == (KNOWN if lost else COUNT - 1)


# The first half arrived (zeros end a whole one too), or all but the part with term and position.
@pytest.mark.parametrize(
    ("first", "end"), [*((at, HEADER_SIZE) for at in range(8, 40, 4)), (16, 32)]
)
def test_half_a_header_at_the_start_of_a_segment_leaves_the_disk_what_it_was(
    first: int, end: int
) -> None:
    fs, writer = simulated(), Writer()
    store = open_store(fs, FIRST)
    store.save_hard_state(1, "n0")
    writer.make_many(KNOWN + 1)
    while path_of(next_position(writer.end, HEADER_SIZE, CONFIG.segment_size)) == path_of(
        writer.end - 1
    ):
        writer.make()
    last = writer.entries[-1].index
    empty = writer.make(b"")
    store.append(writer.entries)
    store.sync()
    assert store.save_checkpoint(writer.checkpoint(KNOWN))
    assert save_mark(store, writer.entries[KNOWN], KNOWN)
    fs.crash()
    torn = bytearray(empty.data)
    torn[first:end] = bytes(end - first)
    fs.overwrite(path_of(empty.position), bytes(torn), 0)

    store = open_store(fs, OTHER)

    assert store.recovered.incarnation == FIRST.incarnation
    assert store.last_index == last


def test_a_segment_is_cut_where_its_last_entry_or_the_padding_behind_it_is() -> None:
    """One that was closed before it was zeroed to its end, as by a refill, lacks nothing."""
    fs, writer = simulated(), Writer()
    store = open_store(fs, FIRST)
    store.save_hard_state(1, "n0")
    store.append(writer.make_many(COUNT))
    store.sync()
    assert store.save_checkpoint(writer.checkpoint(COUNT - 1))
    store.close()
    size = CONFIG.segment_size
    last = [each for each in writer.entries if each.position < size][-1]
    path = path_of(0)
    found = []
    for kept in (size, last.end + PADDING_SIZE, last.end + PADDING_SIZE - 1, last.end - 1, 0):
        fs.cut(path, kept)
        store = open_store(fs, FIRST)
        found.append(store.recovered.cut_entries)
        store.close()
    lacks = ((0, last.index),)
    assert found == [(), (), lacks, lacks, lacks]


def test_alone_a_log_cut_short_is_refused_with_file_and_byte_and_left_as_it_is() -> None:
    fs, writer = log_beyond_what_is_known()
    cut_below_the_end(fs, writer)
    size = len(fs.visible_bytes(path_of(writer.entries[KNOWN].position)))
    for _ in range(2):
        with pytest.raises(DamagedError, match=rf"byte {size}: the file ends here"):
            open_store(fs, replace(OTHER, alone=True))


def test_alone_a_log_whose_last_known_entry_is_damaged_and_the_next_is_refused() -> None:
    fs, writer = log_beyond_what_is_known()
    known, following = (writer.entries[index].position for index in (KNOWN, KNOWN + 1))
    for position in (known, following):
        fs.flip_bit(path_of(position), position % CONFIG.segment_size + 50)
    place = rf"{path_of(known)}, byte {known % CONFIG.segment_size}: here lay entry {KNOWN}"
    for _ in range(2):
        with pytest.raises(DamagedError, match=place):
            open_store(fs, replace(OTHER, alone=True))


def test_alone_a_log_whose_last_segment_is_another_one_is_refused() -> None:
    fs, writer = log_beyond_what_is_known()
    following = writer.entries[KNOWN + 1].position
    fs.swap(path_of(0), path_of(following))
    place = rf"{path_of(following)}, byte {following % CONFIG.segment_size}: here stands entry"
    for _ in range(2):
        with pytest.raises(DamagedError, match=place):
            open_store(fs, replace(OTHER, alone=True))


def a_segment_behind_what_is_known_holds_another(fs: SimulatedFileSystem, writer: Writer) -> str:
    """The other one lies before the checkpoint, where opening reads nothing."""
    known = path_of(writer.entries[KNOWN].position)
    later = next(each for each in writer.entries if path_of(each.position) > known)
    fs.swap(path_of(0), path_of(later.position))
    return path_of(later.position)


def test_a_log_with_another_segment_behind_what_is_known_is_another_disk() -> None:
    fs, writer = log_beyond_what_is_known(count=2 * COUNT)
    a_segment_behind_what_is_known_holds_another(fs, writer)
    store = open_store(fs, OTHER)
    assert KNOWN <= store.last_index < 2 * COUNT - 1
    assert store.recovered.incarnation == OTHER.incarnation


def test_alone_a_log_with_another_segment_behind_what_is_known_is_refused() -> None:
    fs, writer = log_beyond_what_is_known(count=2 * COUNT)
    path = a_segment_behind_what_is_known_holds_another(fs, writer)
    for _ in range(2):
        with pytest.raises(DamagedError, match=rf"{path}, byte 0: here stands entry 0, whose pla"):
            open_store(fs, replace(OTHER, alone=True))
