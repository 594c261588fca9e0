"""Raft's rules under random schedules of messages, disks, links and crashes.

A schedule that breaks a rule is printed as a scenario. To repeat one seed, name it:
``pytest "tests/dledger/raft/test_random_schedules.py::test_..._keep_the_rules[17]"``.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dledger.raft.random_schedule import Schedule
from tests.support.search_effort import sample, searching

THREE = ("n0", "n1", "n2")
FIVE = ("n0", "n1", "n2", "n3", "n4")


@pytest.mark.parametrize("seed", sample(range(100)))
def test_three_nodes_keep_the_rules(seed: int) -> None:
    Schedule(THREE, Random(seed).randrange).run(300)


@pytest.mark.parametrize("seed", sample(range(60)))
def test_five_nodes_keep_the_rules(seed: int) -> None:
    Schedule(FIVE, Random(seed).randrange).run(400)


@pytest.mark.parametrize("seed", sample(range(60)))
def test_changing_members_keep_the_rules(seed: int) -> None:
    Schedule(THREE, Random(seed).randrange, spare=("n3", "n4")).run(500)


@pytest.mark.parametrize("seed", sample(range(40)))
def test_old_copies_of_disks_that_all_others_know_of_keep_the_rules(seed: int) -> None:
    names = (THREE, FIVE)[seed % 2]
    Schedule(names, Random(seed).randrange, copies=True).run(500)


class Tape:
    """Draws from bytes, so that Hypothesis can shorten a schedule that breaks a rule."""

    def __init__(self, tape: bytes) -> None:
        self._numbers = iter(tape)

    def draw(self, count: int) -> int:
        """The next byte, brought into range; 0 after the last."""
        return next(self._numbers, 0) % count


@given(st.binary(max_size=300), st.sampled_from((THREE, FIVE)))
@searching(100)
def test_shrinkable_schedules_keep_the_rules(tape: bytes, names: tuple[str, ...]) -> None:
    Schedule(names, Tape(tape).draw).run(len(tape) // 2)


def test_schedules_reach_what_they_are_for() -> None:
    """Elections, commits, cuts, reads and crashes all happen, or the tests above prove nothing."""
    commands: dict[str, int] = {}
    leaders = committed = cut = read = 0
    for seed in range(20):
        schedule = Schedule(THREE, Random(seed).randrange)
        schedule.run(300)
        for command in schedule.commands:
            word = command.split()[0]
            commands[word] = commands.get(word, 0) + 1
        seen = schedule.seen
        leaders += len(seen.leaders)
        committed += len(seen.committed)
        cut += seen.truncations
        read += seen.disk_reads
    assert all(commands[word] > 10 for word in ("crash", "cut", "late", "repeat", "disconnect"))
    assert leaders > 40
    assert committed > 200
    assert cut > 0
    assert read > 0
