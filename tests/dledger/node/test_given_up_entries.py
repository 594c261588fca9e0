"""A damaged entry that all peers have given up: the log ends before it, and is refilled."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from dledger.wire.service_messages import FetchResponse, FetchStatus
from simulator.engine.disk import PowerLossError, SimulatedFileSystem
from store.errors import DamagedLogError
from store.recovery.damaged_log import cut_at_damage
from store.recovery.opening import StoreConfig
from tests.dledger.node.test_startup_repair import COUNT, damaged_replica, repair
from tests.store.small_logs import CONFIG, DIRECTORY, contents, data_of, open_store

ANOTHER_DISK = replace(CONFIG, incarnation=5)


def gone(index: int) -> FetchResponse:
    return FetchResponse(index, FetchStatus.EXPIRED, index + 1)


@pytest.mark.parametrize("damaged", [6, 20, COUNT - 5])
def test_where_all_have_given_up_an_entry_the_log_ends_before_it_on_another_disk(
    damaged: int,
) -> None:
    fs = SimulatedFileSystem(Random(1))
    writer = damaged_replica(fs, damaged)
    late = {peer: gone(damaged) for peer in ("n1", "n2")}
    repair(fs, {"n1": [], "n2": []}, late=late, config=ANOTHER_DISK)
    fs.power_loss()
    store = open_store(fs)
    assert contents(store) == data_of(writer.entries[:damaged])
    assert store.recovered.commit_index == damaged - 1
    assert store.recovered.incarnation == 5
    assert store.read_vote_floor() == COUNT - 3  # the last that was known to be durable


@pytest.mark.parametrize(
    ("config", "answers"),
    [
        (ANOTHER_DISK, {"n1": gone(6)}),
        (ANOTHER_DISK, {"n1": gone(6), "n2": gone(5)}),
        (ANOTHER_DISK, {"n1": gone(6), "n2": FetchResponse(6, FetchStatus.MISSING, 0)}),
        (CONFIG, {"n1": gone(6), "n2": gone(6)}),
    ],
    ids=["one silent", "another entry", "one may get it", "no other disk"],
)
def test_an_entry_that_one_may_still_give_is_waited_for(
    config: StoreConfig, answers: dict[str, FetchResponse]
) -> None:
    fs = SimulatedFileSystem(Random(1))
    damaged_replica(fs, 6)
    before = {path: fs.visible_bytes(path) for path in fs.files()}
    with pytest.raises(TimeoutError):
        repair(fs, {"n1": [], "n2": []}, late=answers, config=config)
    assert {path: fs.visible_bytes(path) for path in fs.files()} == before


def test_wherever_the_cut_ends_the_log_is_damaged_as_before_or_cut() -> None:
    for call in range(1, 200):
        fs = SimulatedFileSystem(Random(call))
        writer = damaged_replica(fs, 6)
        with pytest.raises(DamagedLogError) as raised:
            open_store(fs)
        fs.lose_power_at(call)
        try:
            cut_at_damage(fs, DIRECTORY, ANOTHER_DISK, raised.value)
            break
        except PowerLossError:
            fs.power_loss()
        try:
            store = open_store(fs)
        except DamagedLogError:
            pass  # as before: peers are asked once more
        else:
            assert contents(store) == data_of(writer.entries[:6])
            assert (store.recovered.incarnation, store.read_vote_floor()) == (5, COUNT - 3)
    else:
        raise AssertionError("it never ends")
