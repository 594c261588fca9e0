"""A damaged entry that all peers have given up: the log ends before it, and is refilled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from dledger.wire.service_messages import FetchResponse, FetchStatus
from simulator.engine.disk import PowerLossError, SimulatedFileSystem
from store.errors import DamagedError
from store.recovery.opening import StoreConfig
from store.recovery.recovery import Recovery
from store.replica import ReplicaStore
from tests.dledger.node.repaired_replicas import COUNT, damaged_replica, repair
from tests.dledger.node.test_lost_last_entry import KNOWN, path_of
from tests.store.small_logs import (
    CONFIG,
    DIRECTORY,
    Writer,
    contents,
    data_of,
    open_store,
    save_mark,
)

ANOTHER_DISK = replace(CONFIG, incarnation=5)


def gone(index: int) -> FetchResponse:
    return FetchResponse(index, FetchStatus.EXPIRED, index + 1)


@pytest.mark.parametrize("damaged", [6, 20, COUNT - 5])
def test_where_all_have_given_up_an_entry_the_log_ends_before_it_on_another_disk(
    damaged: int,
) -> None:
    fs = SimulatedFileSystem(Random(1))
    writer = damaged_replica(fs, damaged)
    answers = {peer: gone(damaged) for peer in ("n1", "n2")}
    repair(fs, {"n1": [], "n2": []}, answers=answers, config=ANOTHER_DISK)
    fs.power_loss()
    store = open_store(fs)
    assert contents(store) == data_of(writer.entries[:damaged])
    assert store.recovered.commit_index == damaged - 1
    assert store.recovered.incarnation == 5
    assert store.read_vote_floor() == COUNT - 3  # the last that was known to be durable


@pytest.mark.parametrize(
    ("config", "answers", "error"),
    [
        (ANOTHER_DISK, {"n1": gone(6)}, TimeoutError),
        (ANOTHER_DISK, {"n1": gone(6), "n2": gone(5)}, TimeoutError),
        (
            ANOTHER_DISK,
            {"n1": gone(6), "n2": FetchResponse(6, FetchStatus.MISSING, 0)},
            TimeoutError,
        ),
        (CONFIG, {"n1": gone(6), "n2": gone(6)}, DamagedError),
    ],
    ids=["one silent", "another entry", "one may get it", "no other disk"],
)
def test_an_entry_that_one_may_still_give_is_waited_for(
    config: StoreConfig, answers: dict[str, FetchResponse], error: type[Exception]
) -> None:
    fs = SimulatedFileSystem(Random(1))
    damaged_replica(fs, 6)
    before = {path: fs.visible_bytes(path) for path in fs.files()}
    with pytest.raises(error):
        repair(fs, {"n1": [], "n2": []}, answers=answers, config=config)
    assert {path: fs.visible_bytes(path) for path in fs.files()} == before


def without_index(fs: SimulatedFileSystem) -> None:
    for path in [path for path in fs.files() if "/index/" in path]:
        fs.vanish(path)


def damaged_below_its_checkpoint(seed: int) -> tuple[SimulatedFileSystem, Writer]:
    """Entry 6 has rotted, and no entry index leads past it."""
    fs = SimulatedFileSystem(Random(seed))
    store, writer = open_store(fs), Writer()
    store.save_hard_state(1, "n0")
    store.append(writer.make_many(COUNT))
    store.sync()
    assert store.save_checkpoint(writer.checkpoint(KNOWN))
    assert save_mark(store, writer.entries[KNOWN], KNOWN)
    store.close()
    entry = writer.entries[6]
    fs.flip_bit(path_of(entry), entry.position % CONFIG.segment_size + 30)
    without_index(fs)
    return fs, writer


def test_what_all_have_expired_below_the_checkpoint_leaves_an_empty_log_that_is_refilled() -> None:
    fs, _ = damaged_below_its_checkpoint(1)
    answers = {peer: gone(6) for peer in ("n1", "n2")}
    repair(fs, {"n1": [], "n2": []}, answers=answers, config=ANOTHER_DISK)
    fs.power_loss()
    store = open_store(fs)
    found = store.recovered
    assert (found.first_index, found.last_index, found.checkpoint) == (0, -1, None)
    assert (found.incarnation, store.read_vote_floor()) == (5, KNOWN)
    assert fs.exists(f"{DIRECTORY}/state/rebuild")


def test_wherever_the_cut_ends_the_log_is_damaged_as_before_or_cut() -> None:
    def replica(seed: int) -> tuple[SimulatedFileSystem, Writer]:
        fs = SimulatedFileSystem(Random(seed))
        return fs, damaged_replica(fs, 6)

    ends_at_any_call(replica, last_index=5, floor=COUNT - 3)


def test_wherever_the_emptying_ends_the_log_is_damaged_as_before_or_empty() -> None:
    ends_at_any_call(damaged_below_its_checkpoint, last_index=-1, floor=KNOWN)


def ends_at_any_call(
    replica: Callable[[int], tuple[SimulatedFileSystem, Writer]], last_index: int, floor: int
) -> None:
    for call in range(1, 300):
        fs, writer = replica(call)
        recovery = Recovery(fs, DIRECTORY, ANOTHER_DISK)
        fs.lose_power_at(call)
        try:
            recovery.give_up()
            recovery.finish()
            break
        except PowerLossError:
            fs.power_loss()
        recovery = Recovery(fs, DIRECTORY, ANOTHER_DISK)
        if recovery.hole is not None:
            assert recovery.hole.index == 6  # as before: peers are asked once more
            recovery.give_up()
        store = ReplicaStore(fs, DIRECTORY, recovery.finish())
        found = contents(store)
        assert found == data_of(writer.entries[: len(found)])
        # One that is to be empty may keep entries that were not zeroed yet.
        assert len(found) == last_index + 1 or (last_index < 0 and len(found) <= 6)
        assert (store.recovered.incarnation, store.read_vote_floor()) == (5, floor)
    else:
        raise AssertionError("it never ends")
