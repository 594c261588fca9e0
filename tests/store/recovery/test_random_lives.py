"""One replica through many processes, each of which ends in some file call: killed, without power,
or by an error. What was durable must be there again, and what it opens with must be durable.

Many more: ``LIVES_SEEDS=1-20000 python -m pytest tests/store/recovery/test_random_lives.py``.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from simulator.engine.disk import Fault, PowerLossError, SimulatedFileSystem
from simulator.engine.disk_file import SimulatedFile
from store.errors import FatalDiskError, StoreError
from store.log import room_ahead
from store.log.entry import Entry
from store.recovery.recovery import Recovery
from store.replica import ReplicaStore
from tests.store.small_logs import (
    CONFIG,
    DIRECTORY,
    Writer,
    contents,
    data_of,
    open_store,
    save_mark,
)
from tests.support.search_effort import sample

FIRST, LAST = map(int, os.environ.get("LIVES_SEEDS", "1-120").split("-"))
LIVES_MAX, PASSES_MAX = 6, 4


class LateDisk:
    """Ends the one write that was begun when it is told to; some have to be done again."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._end: Callable[[], None] | None = None

    def begin(
        self,
        file: SimulatedFile,
        data: bytes,
        position: int,
        then: Callable[[OSError | None], None],
    ) -> bool:
        def end() -> None:
            if self._rng.random() < 0.15:
                file.pwrite(data[: self._rng.randrange(len(data) + 1)], position)
                then(BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)))
                return
            try:
                file.append_direct(data, position)
                file.datasync()
            except OSError as error:
                then(error)
            else:
                then(None)

        self._end = end
        return self._rng.random() < 0.85

    def end(self) -> None:
        if self._end is not None:
            self._end()


class Lives:
    """All of it is decided by the seed."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = random.Random(seed)
        size = rng.choice((400, 1000, 8192))
        self.incarnation = 1
        self.lost = 0  # what may have been lost: bits of entries, or sectors
        self.config = replace(
            CONFIG, segment_size=size, direct=rng.random() < 0.7, incarnation=self.incarnation
        )
        self.fs = SimulatedFileSystem(random.Random(-seed), sector_size=rng.choice((64, 512)))
        self.writer = Writer(size)
        self.durable = 0  # as many entries
        self.branch: list[Entry] | None = None  # what a truncation under way drops
        self.votes = [(0, "")]
        self.committed = -1
        self.how = ""

    # --- processes, and how they end

    def arm(self) -> None:
        """The process ends in one of its next calls, or in none."""
        self.how = self.rng.choice(("killed", "killed", "power", "error", "sync error", ""))
        calls = self.rng.randint(1, self.rng.choice((6, 25, 60)))
        if self.how in {"killed", "power"}:
            self.fs.lose_power_at(calls)
        elif self.how:
            named = ("datasync",) if self.how == "sync error" else ()
            self.fs.inject(Fault(calls, errno.EIO, operations=named))

    def end(self) -> None:
        if self.how == "power":
            self.fs.power_loss(keep=self.rng.choice((0.0, 0.5, 1.0)))
        else:
            self.fs.crash()
        self.how = ""
        self.config = replace(self.config, incarnation=self.config.incarnation + 1)

    def run(self) -> None:
        for _ in range(self.rng.randint(2, LIVES_MAX)):
            self.fs.writes = None
            if self.rng.random() < 0.6:
                self.arm()
            try:
                store = self.open()
                self.check(store)
                if not self.how:
                    store = self.reopened(store)
                    self.arm()
                self.live(store)
                self.how = self.rng.choice(("killed", "power"))
            except PowerLossError:
                assert self.how in {"killed", "power"}
            except (FatalDiskError, OSError):
                if "error" not in self.how:
                    raise
            self.end()
        store = self.open()
        self.check(store)
        self.reopened(store)

    def survives(self, store: ReplicaStore) -> bool:
        """Whether the replica must hold what it held durably: it says by another incarnation that
        it may not."""
        before, self.incarnation = self.incarnation, store.recovered.incarnation
        return before == self.incarnation or not self.lost

    def open(self) -> ReplicaStore:
        """Holes are filled first, as peers would do it."""
        recovery = Recovery(self.fs, DIRECTORY, self.config)
        while recovery.hole is not None:
            recovery.fill(self.entries[recovery.hole.index :][:3])
        return ReplicaStore(self.fs, DIRECTORY, recovery.finish())

    @property
    def entries(self) -> list[Entry]:
        return self.writer.entries if self.branch is None else self.branch

    # --- what must be there

    def check(self, store: ReplicaStore) -> None:
        self.repair_all(store)
        found, end = store.recovered, store.last_index + 1
        assert (found.term, found.vote) in self.votes
        self.votes = [(found.term, found.vote)]
        if not self.survives(store):
            self.durable, self.committed = found.commit_index + 1, found.commit_index
        assert end >= self.durable
        read = contents(store)
        branches = [each for each in (self.writer.entries, self.branch) if each is not None]
        same = [each for each in branches if data_of(each[store.first_index : end]) == read]
        assert same, "these are no entries of this log"
        self.writer.entries = same[0][:end]
        self.branch = None
        self.durable = end
        self.committed = max(self.committed, found.commit_index)

    def repair_all(self, store: ReplicaStore) -> None:
        """As the scrub does it, pass after pass."""
        for _ in range(PASSES_MAX):
            if not self.mend_some(store):
                return
        raise AssertionError("what is damaged stays so")

    def mend_some(self, store: ReplicaStore) -> bool:
        """One pass; whether anything was damaged."""
        found = False
        index = store.first_index
        while index <= store.last_index:
            checked = store.check_entries(index, store.last_index, 500)
            for damaged in checked.damage:
                found = True
                try:
                    store.repair_entry(self.entries[damaged])
                except FatalDiskError:
                    raise
                except StoreError:
                    break  # what stands before it is damaged, too: the next pass says so
            index = checked.next_index
        return found

    def reopened(self, store: ReplicaStore) -> ReplicaStore:
        """Without power for a moment: nothing that it has said so far was only in a cache."""
        read, first = contents(store), store.first_index
        self.fs.power_loss(keep=0.0)
        again = open_store(self.fs, self.config)
        assert contents(again) == read[again.first_index - first :]
        assert (again.recovered.term, again.recovered.vote) == self.votes[0]
        return again

    # --- what a process does

    def live(self, store: ReplicaStore) -> None:
        disk = self.fs.writes = LateDisk(self.rng)
        self.vote(store)
        steps = (self.append, self.append, self.vote, self.cut, self.rot, self.mark, self.mark)
        for _ in range(self.rng.randint(3, 20)):
            self.rng.choice(steps)(store)
            self.rng.choice((store.preallocate_next, store.drop_cached, lambda: None))()
            if self.rng.random() < 0.7:
                self.begin(store, disk)
            if self.rng.random() < 0.2:
                self.checkpoint(store)

    def made(self) -> list[Entry]:
        size = self.rng.choice((1, 30, 60, 90))
        return self.writer.make_many(self.rng.randint(1, 4), size, self.votes[0][0])

    def append(self, store: ReplicaStore) -> None:
        store.append(self.made())
        store.sync()
        self.durable = len(self.writer.entries)

    def begin(self, store: ReplicaStore, disk: LateDisk) -> None:
        """While the disk is at work, the background thread is, too."""
        entries, told = self.made(), list[BaseException | None]()
        if store.begin_append(entries, told.append):
            self.mark(store)
            store.preallocate_next()
            disk.end()
            [error] = told
            if error is not None and not isinstance(error, BlockingIOError):
                raise error
        else:
            error = BlockingIOError()
        if error is not None:
            store.append(entries)
            store.sync()
        self.durable = len(self.writer.entries)

    def vote(self, store: ReplicaStore) -> None:
        term, vote = self.votes[0][0] + 1, self.rng.choice(("n0", "n1"))
        self.votes.append((term, vote))
        store.save_hard_state(term, vote)
        self.votes = [(term, vote)]

    def cut(self, store: ReplicaStore) -> None:
        first = max(self.committed + 1, store.first_index + 1)
        if first > store.last_index:
            return
        index = self.rng.randint(first, store.last_index)
        self.branch = list(self.writer.entries)
        self.durable = min(self.durable, index)
        store.truncate(index)
        self.writer.cut(index)
        self.branch = None
        self.vote(store)  # what takes their place is of a later term

    def mark(self, store: ReplicaStore) -> None:
        known = max(store.first_index, store._marks.mark.index)
        if known < self.durable:
            index = self.rng.randrange(known, self.durable)
            commit_index = self.rng.randint(-1, index)
            self.committed = max(self.committed, commit_index)
            save_mark(store, self.writer.entries[index], commit_index)

    def rot(self, store: ReplicaStore) -> None:
        """A bit of what is marked as durable flips; mostly that is repaired at once."""
        last = store._marks.mark.index
        if last < store.first_index:
            return
        entry = self.writer.entries[self.rng.randint(store.first_index, last)]
        start = entry.position - entry.position % self.config.segment_size
        byte = entry.position - start + self.rng.randrange(entry.size)
        self.lost += 1
        self.fs.flip_bit(f"{DIRECTORY}/commitlog/{start:020d}", byte, self.rng.randrange(8))
        self.repair_all(store)
        self.lost -= 1

    def checkpoint(self, store: ReplicaStore) -> None:
        newest = store.checkpoints.newest
        first = store.first_index if newest is None else newest.index + 1
        if first < self.durable:
            index = self.rng.randrange(first, self.durable)
            self.committed = max(self.committed, index)
            store.save_checkpoint(self.writer.checkpoint(index))
            kept = self.rng.randint(store.first_index, index)
            store.expire(self.writer.entries[kept].position)


@pytest.mark.parametrize("large_append", [1, room_ahead.LARGE_APPEND])
@pytest.mark.parametrize("seed", sample(range(FIRST, LAST + 1)))
def test_what_was_durable_is_there_in_the_next_life(
    seed: int, large_append: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room_ahead, "LARGE_APPEND", large_append)
    print(f"repeat it with: LIVES_SEEDS={seed}-{seed} python -m pytest {__file__}")
    Lives(seed).run()


class LivesOfABadDisk(Lives):
    """Between two processes a sector of the log, or of its index, is lost now and then."""

    def end(self) -> None:
        super().end()
        while self.rng.random() < 0.5:
            kinds = ("/commitlog/", "/index/")
            paths = [path for path in self.fs.files() if any(kind in path for kind in kinds)]
            path = self.rng.choice(paths) if paths else ""
            size = len(self.fs.visible_bytes(path)) if path else 0
            if size:
                self.fs.lose_sector(path, self.rng.randrange(size))
                self.lost += 1


@pytest.mark.parametrize("seed", sample(range(FIRST, LAST + 1)))
def test_what_was_durable_is_there_or_known_to_be_lost_with_a_sector(seed: int) -> None:
    print(f"repeat it with: LIVES_SEEDS={seed}-{seed} python -m pytest {__file__}")
    LivesOfABadDisk(seed).run()
