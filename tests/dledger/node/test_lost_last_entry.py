"""The last entry that was known to be durable is gone, and so may be what came behind it."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from simulator.engine.disk import SimulatedFileSystem
from store.log.entry import Entry
from store.log.layout import segment_name, segment_start
from tests.dledger.node.repaired_replicas import COUNT, repair
from tests.store.small_logs import CONFIG, DIRECTORY, Writer, open_store, save_mark

KNOWN = 30
FIRST, OTHER, THIRD = (replace(CONFIG, incarnation=number) for number in (7, 8, 9))


def log_with_a_checkpoint(checkpoint: int) -> tuple[SimulatedFileSystem, Writer]:
    """More is on the disk than is known to be, and known to be committed: up to ``KNOWN``."""
    fs, writer = SimulatedFileSystem(Random(1)), Writer()
    store = open_store(fs, FIRST)
    store.save_hard_state(1, "n0")
    store.append(writer.make_many(COUNT))
    store.sync()
    assert store.save_checkpoint(writer.checkpoint(checkpoint))
    assert save_mark(store, writer.entries[KNOWN], KNOWN)
    fs.crash()
    return fs, writer


def path_of(entry: Entry) -> str:
    start = segment_start(entry.position, CONFIG.segment_size)
    return f"{DIRECTORY}/commitlog/{segment_name(start)}"


def behind(writer: Writer, entry: Entry) -> Entry:
    """The first entry of the next segment."""
    return next(each for each in writer.entries if path_of(each) > path_of(entry))


def test_a_log_whose_last_known_entry_had_to_be_put_back_is_another_disk() -> None:
    fs, writer = log_with_a_checkpoint(3)
    fs.swap(path_of(writer.entries[8]), path_of(writer.entries[KNOWN]))
    repair(fs, {"n1": writer.entries}, config=OTHER)
    fs.power_loss()
    store = open_store(fs, THIRD)
    assert store.last_index == KNOWN
    assert store.recovered.incarnation == OTHER.incarnation


def test_a_full_disk_puts_off_that_a_log_is_another_disk_and_does_not_prevent_it() -> None:
    fs, writer = log_with_a_checkpoint(3)
    last = writer.entries[KNOWN]
    fs.flip_bit(path_of(last), last.position % CONFIG.segment_size + 30)
    fs.capacity = fs.used_bytes()

    def make_room() -> None:
        fs.capacity = None

    givers = repair(fs, {"n1": writer.entries}, config=OTHER, after_5_s=make_room)
    assert len(givers.asked) > 3
    assert open_store(fs, THIRD).recovered.incarnation == OTHER.incarnation


def test_a_log_that_is_repaired_further_in_front_is_the_disk_that_it_was() -> None:
    fs, writer = log_with_a_checkpoint(3)
    fs.flip_bit(path_of(writer.entries[8]), writer.entries[8].position % CONFIG.segment_size + 30)
    repair(fs, {"n1": writer.entries}, config=OTHER)
    store = open_store(fs, THIRD)
    assert store.last_index == COUNT - 1
    assert store.recovered.incarnation == FIRST.incarnation


def test_entries_behind_the_last_known_one_are_missed_where_they_were_swapped_with_others() -> None:
    fs, writer = log_with_a_checkpoint(3)
    later, segment = behind(writer, writer.entries[KNOWN]), behind(writer, writer.entries[3])
    fs.swap(path_of(segment), path_of(later))
    repair(fs, {"n1": writer.entries}, config=OTHER)
    fs.power_loss()
    store = open_store(fs, THIRD)
    assert store.last_index == later.index - 1
    assert store.recovered.incarnation == OTHER.incarnation


def test_what_was_overwritten_together_with_the_last_known_entry_is_missed() -> None:
    """A write to a wrong place covers both. Only the first of them is known to have been there."""
    fs, writer = log_with_a_checkpoint(3)
    last = writer.entries[KNOWN]
    begin = last.position % CONFIG.segment_size
    fs.overwrite(path_of(last), bytes(last.size + 200), begin)
    repair(fs, {"n1": writer.entries}, config=OTHER)
    store = open_store(fs, THIRD)
    assert store.last_index == KNOWN
    assert store.recovered.incarnation == OTHER.incarnation
