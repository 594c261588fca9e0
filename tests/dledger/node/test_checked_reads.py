"""Reads of messages: whole entries are checked, what comes next is read with them, and no more is
kept than fits."""

from __future__ import annotations

import gc
import weakref
from functools import partial
from typing import Any, cast

import pytest

import dledger.node.checked_reads
from dledger.node.checked_reads import COPIED_BELOW, CheckedReads
from dledger.node.executor import Executor
from dledger.node.read_cache import ReadCache
from store.errors import DamagedError, MisplacedError, OutOfRangeError
from store.log.entry import HEADER_SIZE
from store.log.entry_reader import EntryRange
from store.log.entry_row import ROW_SIZE
from tests.store.small_logs import DIRECTORY, Writer, open_store, simulated
from tests.support.fake_executor import FakeExecutor

COUNT = 40


class Log:
    """A node's log of small entries in segments of a few, and what was read of it."""

    def __init__(self, reads: Executor | None = None) -> None:
        self.fs = simulated()
        self.store = open_store(self.fs)
        self.store.save_hard_state(1, "")
        self.writer = Writer()
        self.store.append(self.writer.make_many(COUNT))
        self.store.sync()
        self.suspects: list[int] = []
        self.rows_repaired: list[int] = []
        self.runs: list[tuple[int, int]] = []
        read_range = self.store.read_range

        def watched(first_index: int, last_index: int, max_bytes: int) -> EntryRange:
            run = read_range(first_index, last_index, max_bytes)
            self.runs.append((first_index, len(run.data) // run.first_size))
            return run

        self.store.read_range = watched  # type: ignore[method-assign]  # watched
        self.applied_index = COUNT - 1
        self.suspects_derived: list[int] = []
        self.reads = self.reader(reads)

    def reader(self, reads: Executor | None = None) -> CheckedReads:
        """One that has read nothing yet."""
        return CheckedReads(
            store=self.store,
            reads=reads or FakeExecutor(),
            applied_index=lambda: self.applied_index,
            suspect=self.suspects.append,
            suspect_derived=self.suspects_derived.append,
            repair_index=self.repair_index,
        )

    def repair_index(self) -> None:
        self.rows_repaired += self.store.repair_index()

    def body(self, index: int) -> bytes:
        """What is read where the body of that entry lies. Raises what was told instead."""
        entry = self.writer.entries[index]
        return self.at(entry.position + HEADER_SIZE, entry.size - HEADER_SIZE)

    def at(self, position: int, size: int) -> bytes:
        found = self.reads.at_hand(position, size)
        if found is not None:
            return bytes(found)
        told: list[bytes] = []

        def done(parts: Any, error: BaseException | None) -> None:
            if error is not None:
                raise error
            told.extend(map(bytes, parts))

        self.reads.read([(position, size)], done)
        return told[0]

    def rot(self, index: int, byte: int) -> None:
        position = self.writer.entries[index].position
        start = position - position % self.store.segment_size
        self.fs.flip_bit(f"{DIRECTORY}/commitlog/{start:020d}", position - start + byte)


@pytest.fixture(autouse=True)
def short_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dledger.node.checked_reads, "RANGE_BYTES", 400)


def test_of_those_who_read_here_and_there_one_entry_is_read_and_kept() -> None:
    log = Log()
    for index in (30, 3, 17, 3, 30):
        assert log.body(index) == bytes(log.writer.entries[index].body)
    assert log.runs == [(30, 1), (3, 1), (17, 1)]


def test_what_comes_next_is_read_with_what_is_asked_for_and_not_what_is_not_applied() -> None:
    log = Log()
    log.applied_index = 30
    assert [log.body(index) for index in range(31)] == [
        bytes(entry.body) for entry in log.writer.entries[:31]
    ]
    per_segment = [first for first, _ in log.runs]
    assert log.runs[0] == (0, 1)
    assert len(per_segment) < 31 / 3
    assert all(first + count <= 31 for first, count in log.runs)
    with pytest.raises(OutOfRangeError):
        log.body(31)


@pytest.mark.parametrize("applied", [20, COUNT - 1, COUNT + 5])
def test_what_is_not_there_yet_is_not_told_as_damage(applied: int) -> None:
    log = Log()
    log.applied_index = applied
    end = log.writer.entries[min(applied, COUNT - 1)].end
    for position in (end, log.writer.end, log.writer.end + 100):
        with pytest.raises(OutOfRangeError) as told:
            log.at(position, 20)
        assert not isinstance(told.value, MisplacedError)
    assert log.suspects == []


def test_only_bytes_of_one_entry_are_given() -> None:
    log = Log()
    entry = log.writer.entries[5]
    assert log.at(entry.position, entry.size) == bytes(entry.data)
    with pytest.raises(MisplacedError):
        log.at(entry.end - 4, 8)
    with pytest.raises(OutOfRangeError):
        log.at(log.writer.end, 1)


@pytest.mark.parametrize("byte", [20, 40, HEADER_SIZE, -1])
def test_what_rotted_is_suspected_and_what_lies_beside_it_is_given(byte: int) -> None:
    log = Log()
    size = log.writer.entries[12].size
    log.rot(12, byte % size)
    for index in (10, 11, 13, 14):
        assert log.body(index) == bytes(log.writer.entries[index].body)
    log.suspects.clear()
    with pytest.raises(DamagedError):
        log.body(12)
    assert log.suspects == [12]


@pytest.mark.parametrize("byte", [3, 4, 10, 11, 12, 15, 20, 31])
@pytest.mark.parametrize("rotted", [0, 12, 13, 31])
def test_a_wrong_row_keeps_nobody_from_an_entry_and_is_repaired(rotted: int, byte: int) -> None:
    log = Log()
    log.store.save_checkpoint(log.writer.checkpoint(COUNT - 1))
    path = f"{DIRECTORY}/index/{(rotted - rotted % 4) * ROW_SIZE:020d}"
    log.fs.flip_bit(path, rotted % 4 * ROW_SIZE + byte, 6)
    for index in range(COUNT):
        log.reads = log.reader()  # with nothing in memory
        assert log.body(index) == bytes(log.writer.entries[index].body)
    assert log.rows_repaired == [rotted]
    assert log.suspects == []


def test_what_has_expired_is_not_given_from_memory() -> None:
    log = Log()
    log.store.save_checkpoint(log.writer.checkpoint(20))
    log.store.save_checkpoint(log.writer.checkpoint(21))
    log.body(2)
    log.store.expire(log.writer.entries[20].position)
    with pytest.raises(OutOfRangeError):
        log.body(2)


def test_no_more_is_kept_than_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dledger.node.checked_reads, "ReadCache", partial(ReadCache, bytes_max=200))
    log = Log()
    for index in (30, 3, 17, 30):
        log.body(index)
    assert log.runs == [(30, 1), (3, 1), (17, 1), (30, 1)]
    monkeypatch.setattr(dledger.node.checked_reads, "ReadCache", partial(ReadCache, runs_max=2))
    log = Log()
    for index in (5, 25, 5, 10, 5, 25):
        log.body(index)
    assert [first for first, _ in log.runs] == [5, 25, 10, 25]


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("size", [1, 8, 60])
def test_who_reads_little_of_many_entries_holds_little(size: int, known: bool) -> None:
    log = Log()
    answers: list[bytes | memoryview] = []
    for entry in log.writer.entries:
        position, most = entry.position + HEADER_SIZE, min(size, entry.size - HEADER_SIZE)
        if known:
            log.at(position, most)
            found = log.reads.at_hand(position, most)
            assert found is not None
            answers.append(cast(Any, found))
        else:
            log.reads.read([(position, most)], lambda parts, _: answers.extend(cast(Any, parts)))
    assert len(answers) == COUNT
    for answer in answers:
        held = answer.obj if isinstance(answer, memoryview) else answer
        assert len(cast(bytes, held)) <= len(answer) / COPIED_BELOW


def test_others_have_a_turn_while_much_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dledger.node.checked_reads, "JOB_BYTES", 250)
    turns = FakeExecutor()
    turns.hold()
    log = Log(turns)
    wanted = [log.writer.entries[index] for index in range(0, COUNT, 3)]
    told: list[tuple[str, list[bytes]]] = []

    def read(name: str, ranges: list[tuple[int, int]]) -> None:
        log.reads.read(ranges, lambda parts, _: told.append((name, list(map(bytes, parts or ())))))

    read("much", [(entry.position, entry.size) for entry in wanted])
    read("little", [(log.writer.entries[1].position, log.writer.entries[1].size)])
    turns.drain()
    assert [name for name, _ in told] == ["little", "much"]
    assert told[0][1] == [bytes(log.writer.entries[1].data)]
    assert told[1][1] == [bytes(entry.data) for entry in wanted]


def test_what_was_given_is_held_by_nobody_else() -> None:
    """Not even until the next collection of garbage, which a busy node makes seldom."""
    log = Log()
    entry = log.writer.entries[5]
    given: list[weakref.ref[memoryview]] = []
    gc.disable()
    try:
        log.reads.read(
            [(entry.position, entry.size)],
            lambda parts, _: given.extend(map(weakref.ref, cast(Any, parts))),
        )
        assert [each() for each in given] == [None]
    finally:
        gc.enable()


def test_many_readers_that_meet_one_damage_add_one_job() -> None:
    """Each added a look-up of the entry, and thousands of them held up all reads."""
    turns = FakeExecutor()
    turns.hold()
    log = Log(turns)
    entry = log.writer.entries[7]
    for _ in range(1000):
        log.reads.suspect_derived(entry.position)
    turns.work(1)
    assert log.suspects_derived == [7]
    turns.drain()
    assert log.suspects_derived == [7]
    log.reads.suspect_derived(entry.position)
    turns.drain()
    assert log.suspects_derived == [7, 7]
