"""The store against a model of it, through random lives with crashes in them."""

from __future__ import annotations

import contextlib
import random

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from simulator.engine.disk import PowerLossError, SimulatedFileSystem
from store.log.entry import Entry
from store.replica import StoreConfig
from tests.store.small_logs import Writer, contents, data_of, open_store
from tests.support.search_effort import searching

CONFIG = StoreConfig("broker-a", "n0", segment_size=300, min_free_bytes=0, index_rows_per_file=4)


class StoreMachine(RuleBasedStateMachine):
    """The model is the list of entries appended, of which the first ``synced`` are durable."""

    @initialize(seed=st.integers(0, 2**32), sector_size=st.sampled_from([16, 64, 512]))
    def begin(self, seed: int, sector_size: int) -> None:
        self.fs = SimulatedFileSystem(random.Random(seed), sector_size=sector_size)
        self.writer = Writer(CONFIG.segment_size)
        self.term = 0
        self.vote = ""
        self.synced = 0
        self.committed = -1
        self.marked = -1
        self.checkpoints: list[int] = []
        self.store = open_store(self.fs, CONFIG)

    @property
    def entries(self) -> list[Entry]:
        return self.writer.entries

    @rule(vote=st.sampled_from(["", "n0", "n1"]), step=st.integers(0, 2))
    def save_hard_state(self, vote: str, step: int) -> None:
        self.term, self.vote = self.term + step, vote
        self.store.save_hard_state(self.term, vote)

    @rule(sizes=st.lists(st.integers(0, 200), min_size=1, max_size=6))
    def append(self, sizes: list[int]) -> None:
        made = [self.writer.make(bytes([n + 1]) * n, self.term) for n in sizes]
        self.store.append(made)

    @rule()
    def sync(self) -> None:
        self.store.sync()
        self.synced = len(self.entries)

    @rule()
    def prepare(self) -> None:
        self.store.preallocate_next()

    @precondition(lambda self: self.synced > self.committed + 1)
    @rule(data=st.data())
    def mark(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(self.committed + 1, self.synced - 1), label="index")
        commit_index = data.draw(st.integers(self.committed, index), label="commit index")
        entry = self.entries[index]
        assert self.store.save_mark(index, entry.end, entry.chain_crc, commit_index)
        self.committed = commit_index

    @precondition(lambda self: self.synced > self.committed + 1)
    @rule(data=st.data())
    def checkpoint(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(self.committed + 1, self.synced - 1), label="index")
        assert self.store.save_checkpoint(self.writer.checkpoint(index))
        self.committed = index
        self.checkpoints = [*self.checkpoints, index][-2:]

    @precondition(lambda self: len(self.entries) > self.committed + 1)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        first = data.draw(st.integers(self.committed + 1, len(self.entries) - 1), label="first")
        self.store.truncate(first)
        self.writer.cut(first)
        self.synced = len(self.entries)

    @precondition(lambda self: self.entries)
    @rule(data=st.data())
    def expire(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.entries) - 1), label="index")
        before = self.store.first_index
        self.store.expire(self.entries[index].position)
        assert before <= self.store.first_index <= max(before, index)
        assert self.store.first_index <= (self.checkpoints[0] if self.checkpoints else 0)

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.open(len(self.entries))

    @rule()
    def kill(self) -> None:
        self.fs.crash()
        self.open(len(self.entries))

    @rule(keep=st.sampled_from([0.0, 0.5, 0.9, 1.0]))
    def lose_power(self, keep: float) -> None:
        self.fs.power_loss(keep=keep)
        self.open(self.synced)

    @rule(
        sizes=st.lists(st.integers(0, 200), min_size=1, max_size=6),
        calls=st.integers(1, 12),
        power=st.booleans(),
    )
    def end_while_appending(self, sizes: list[int], calls: int, power: bool) -> None:
        """The machine or the process ends within a call: what was synced before is there."""
        before = len(self.entries)
        made = [self.writer.make(bytes([n + 1]) * n, self.term) for n in sizes]
        self.fs.lose_power_at(calls)
        with contextlib.suppress(PowerLossError):
            self.store.append(made)
            self.store.sync()
            self.synced = len(self.entries)
        self.end(self.synced if power else min(before, len(self.entries)), power=power)

    @precondition(lambda self: len(self.entries) > self.committed + 1)
    @rule(data=st.data(), calls=st.integers(1, 12), power=st.booleans())
    def end_while_truncating(self, data: st.DataObject, calls: int, power: bool) -> None:
        """What was to stay is there, and of what was to go any beginning may be."""
        first = data.draw(st.integers(self.committed + 1, len(self.entries) - 1), label="first")
        self.fs.lose_power_at(calls)
        with contextlib.suppress(PowerLossError):
            self.store.truncate(first)
            self.writer.cut(first)
            self.synced = first
        kept = min(self.synced, first) if power else min(first, len(self.entries))
        self.end(kept, power=power)

    def end(self, kept_at_least: int, *, power: bool) -> None:
        if power:
            self.fs.power_loss()
        else:
            self.fs.crash()
        self.open(kept_at_least)

    def open(self, kept_at_least: int) -> None:
        """All that was synced is there, and what else is there is the rest of the log, in order."""
        self.store = open_store(self.fs, CONFIG)
        found = self.store.recovered
        kept = found.last_index + 1
        assert kept_at_least <= kept <= len(self.entries)
        self.writer.cut(kept)
        self.synced = kept
        assert (found.term, found.vote) == (self.term, self.vote)
        assert found.commit_index == self.committed
        expected = self.writer.checkpoint(self.checkpoints[-1]) if self.checkpoints else None
        assert found.checkpoint == expected
        applied = -1 if expected is None else expected.index
        assert found.tail == self.entries[applied + 1 :]
        last = self.writer.checkpoint(kept - 1) if kept else None
        assert found.term_starts == list(last.term_starts if last else ())
        assert found.last_chain_crc == self.writer.chain_crc
        assert found.end_position == self.writer.end

    @invariant()
    def the_log_is_what_was_appended(self) -> None:
        assert self.store.last_index == len(self.entries) - 1
        assert self.store.end_position == self.writer.end
        assert contents(self.store) == data_of(self.entries)[self.store.first_index :]

    @invariant()
    def no_more_is_called_durable_than_the_disk_has(self) -> None:
        """Asked of the disk itself: what is synced is there though the power go now."""
        twin = self.fs.copy()
        twin.power_loss(keep=0.0)
        found = open_store(twin, CONFIG)
        assert found.last_index + 1 >= self.synced
        assert found.end_position >= self.store.synced_position
        assert found.recovered.term == self.term


StoreMachine.TestCase.settings = searching(120, steps=30)
TestStoreAgainstModel = StoreMachine.TestCase
