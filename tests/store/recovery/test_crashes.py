"""A crash, a power loss or a failure at every single file call, and what must hold after it.

Each test runs one script of store calls on a simulated disk with segments of a few hundred bytes,
once for every call that it makes, stopping it there; then the store is opened again.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from simulator.engine.disk import PowerLossError, SimulatedFileSystem
from simulator.engine.disk_faults import Fault
from store.errors import StoreError
from store.log.entry import Entry
from store.replica import ReplicaStore
from tests.store.small_logs import Writer, contents, data_of, open_store, save_mark, simulated
from tests.support.search_effort import sample


@dataclass
class Told:
    """What the store has promised so far: returned calls only."""

    durable: list[Entry] = field(default_factory=list)
    appended: list[Entry] = field(default_factory=list)
    offered: list[list[Entry]] = field(default_factory=list)
    term: int = 0
    vote: str = ""
    next_hard_state: tuple[int, str] = (0, "")
    commit_index: int = -1
    checkpoint_index: int = -1
    next_checkpoint_index: int = -1
    first_index: int = 0
    next_first_index: int = 0


class Script:
    """A life of a replica, in calls that note what they were promised."""

    def __init__(self, fs: SimulatedFileSystem, told: Told) -> None:
        self.fs = fs
        self.told = told
        self.writer = Writer()

    def run(self) -> None:
        store = open_store(self.fs)
        self.vote(store, 1, "n0")
        self.append(store, self.writer.make_many(3))
        self.sync(store)
        self.append(store, self.writer.make_many(8))
        store.preallocate_next()
        self.sync(store)
        self.mark(store, 5)
        self.append(store, self.writer.make_many(3))
        self.sync(store)
        self.mark(store, 10)
        self.vote(store, 2, "n1")
        self.truncate(store, 9)
        self.append(store, self.writer.make_many(9, term=2))
        self.sync(store)
        self.mark(store, 15)
        self.checkpoint(store, 10)
        self.append(store, self.writer.make_many(2, term=2))
        self.checkpoint(store, 14)
        self.expire(store, 9)
        self.sync(store)
        store.close()
        store = open_store(self.fs)
        self.append(store, self.writer.make_many(6, term=2))
        self.sync(store)
        self.checkpoint(store, 17)
        self.append(store, self.writer.make_many(4, term=2))

    def vote(self, store: ReplicaStore, term: int, vote: str) -> None:
        self.told.next_hard_state = (term, vote)
        store.save_hard_state(term, vote)
        self.told.term, self.told.vote = term, vote

    def append(self, store: ReplicaStore, entries: list[Entry]) -> None:
        self.told.offered.append(list(self.writer.entries))
        store.append(entries)
        self.told.appended = list(self.writer.entries)

    def sync(self, store: ReplicaStore) -> None:
        store.sync()
        self.told.durable = list(self.told.appended)

    def mark(self, store: ReplicaStore, index: int) -> None:
        assert save_mark(store, self.writer.entries[index], commit_index=index - 2)
        self.told.commit_index = index - 2

    def truncate(self, store: ReplicaStore, first_index: int) -> None:
        # Until the call returns, what it drops may be there or not.
        del self.told.durable[first_index:]
        self.told.appended = self.told.appended[:first_index]
        self.writer.cut(first_index)
        store.truncate(first_index)
        self.told.appended = list(self.writer.entries)
        self.told.durable = list(self.writer.entries)
        self.told.offered = [list(self.writer.entries)]

    def checkpoint(self, store: ReplicaStore, index: int) -> None:
        self.told.next_checkpoint_index = index
        assert store.save_checkpoint(self.writer.checkpoint(index))
        self.told.checkpoint_index = index

    def expire(self, store: ReplicaStore, index: int) -> None:
        self.told.next_first_index = index
        store.expire(self.writer.entries[index].position)
        self.told.first_index = store.first_index


def calls_of_script() -> int:
    fs = simulated()
    Script(fs, Told()).run()
    return fs.calls


CALLS = calls_of_script()


def check(store: ReplicaStore, told: Told) -> None:
    """What the store was told is there, and nothing that no one offered it."""
    found = contents(store)
    first = store.first_index
    assert told.first_index <= first <= told.next_first_index
    durable = data_of(told.durable)[first:]
    assert found[: len(durable)] == durable
    # One of the logs that were ever offered begins with exactly what was found.
    assert any(data_of(log)[first : first + len(found)] == found for log in [*told.offered, []])
    recovered = store.recovered
    assert (recovered.term, recovered.vote) in {(told.term, told.vote), told.next_hard_state}
    assert recovered.commit_index >= told.commit_index
    checkpoint_index = -1 if recovered.checkpoint is None else recovered.checkpoint.index
    assert checkpoint_index in {told.checkpoint_index, told.next_checkpoint_index}


def go_on(store: ReplicaStore, told: Told) -> None:
    """A store that was recovered is a store: it takes entries and keeps them."""
    writer = Writer()
    writer.entries = [*told.offered[-1]] if told.offered else []
    found = contents(store)
    for log in [*told.offered, []]:
        if data_of(log)[store.first_index : store.first_index + len(found)] == found:
            writer.entries = log[: store.last_index + 1]
            break
    store.save_hard_state(9, "n2")
    store.append(writer.make_many(7, size=41, term=9))
    store.sync()
    assert contents(store) == data_of(writer.entries)[store.first_index :]


def stop_at(call: int, stop: Callable[[SimulatedFileSystem], None], seed: int) -> None:
    fs, told = simulated(seed), Told()
    script = Script(fs, told)
    fs.lose_power_at(call)
    with pytest.raises(PowerLossError):
        script.run()
    stop(fs)
    store = open_store(fs)
    check(store, told)
    go_on(store, told)
    fs.power_loss(keep=0.0)
    store = open_store(fs)
    assert store.recovered.term == 9
    assert store.recovered.torn_bytes_cut == 0


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.7, 1.0])
@pytest.mark.parametrize("call", sample(range(1, CALLS + 1)))
def test_power_loss_at_any_file_call_loses_nothing_that_was_synced(call: int, keep: float) -> None:
    stop_at(call, lambda fs: fs.power_loss(keep=keep), seed=call)


@pytest.mark.parametrize("call", sample(range(1, CALLS + 1)))
def test_a_killed_process_at_any_file_call_loses_nothing_that_was_appended(call: int) -> None:
    fs, told = simulated(call), Told()
    script = Script(fs, told)
    fs.lose_power_at(call)
    with pytest.raises(PowerLossError):
        script.run()
    fs.crash()
    told.durable = [*told.durable, *told.appended[len(told.durable) :]]
    store = open_store(fs)
    check(store, told)
    kept = contents(store)
    fs.power_loss(keep=0.0)
    assert contents(open_store(fs)) == kept


@pytest.mark.parametrize("call", sample(range(1, CALLS + 1)))
def test_power_loss_during_recovery_from_power_loss_loses_nothing(call: int) -> None:
    fs, told = simulated(call), Told()
    fs.lose_power_at(call)
    with pytest.raises(PowerLossError):
        Script(fs, told).run()
    fs.power_loss()
    for countdown in range(1, 1000):
        fault = fs.lose_power_at(countdown)
        try:
            store = open_store(fs)
        except PowerLossError:
            fs.power_loss()
            continue
        assert not fault.hit
        break
    fs.crash()
    store = open_store(fs)
    check(store, told)


@pytest.mark.parametrize("call", sample(range(1, CALLS + 1)))
def test_a_failed_call_ends_the_store_and_loses_nothing_that_was_synced(call: int) -> None:
    fs, told = simulated(call), Told()
    fault = fs.inject(Fault(call, errno.EIO))
    with pytest.raises((StoreError, OSError)):
        Script(fs, told).run()
    assert fault.hit
    fs.crash()
    store = open_store(fs)
    check(store, told)
    # What the page cache showed after a failed sync was not on disk; recovery has put it there.
    kept = contents(store)
    fs.power_loss(keep=0.0)
    assert contents(open_store(fs)) == kept


@pytest.mark.parametrize("call", sample(range(1, CALLS + 1)))
def test_a_disk_that_fills_up_at_any_call_loses_nothing(call: int) -> None:
    fs, told = simulated(call), Told()
    fault = fs.inject(Fault(call, errno.ENOSPC))
    with contextlib.suppress(StoreError):
        Script(fs, told).run()
    assert fault.hit
    fs.power_loss()
    store = open_store(fs)
    check(store, told)
    go_on(store, told)
