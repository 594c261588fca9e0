"""Faults of several steps lead to the situations that they are for, and nothing breaks in them."""

from __future__ import annotations

import pytest

from simulator.faults.injector import FaultPlan
from simulator.faults.raft_sequences import RAFT_SEQUENCE_KINDS, SEQUENCE_KINDS
from simulator.runs.profiles import PROFILES
from simulator.worlds.registry import Run


@pytest.mark.minutes
@pytest.mark.parametrize(
    ("kind", "nodes", "mark", "seed"),
    [
        ("follower unheard", 3, "sent again what was given up", 5),
        ("old copy put back", 3, "old copy of a disk put back", 3),
        ("old copy put back", 3, "disk recognised that lacks what it held", 3),
        ("old copy put back", 3, "voter counts again on another disk", 3),
        ("leader dies in a change", 3, "change of the voters ended by the next leader", 1),
        ("change stuck", 3, "change of the voters called off", 1),
        ("voter wiped beside an empty one", 3, "disk replaced by an empty one", 4),
        ("rival changes", 5, "asked for a change before the first entry of a term", 1),
    ],
)
def test_a_sequence_leads_to_its_situation(kind: str, nodes: int, mark: str, seed: int) -> None:
    """Repeat it with ``Run(seed, nodes=nodes, seconds=16.0, plan=plan).play(print)``."""
    plan = FaultPlan.of((kind,))
    outcome = Run(seed, nodes=nodes, seconds=16.0, plan=plan).play()
    assert outcome.violation is None
    assert outcome.marks[mark] >= 1


def test_the_profile_of_five_voters_knows_all_sequences() -> None:
    profile = PROFILES["voters"]
    assert profile.nodes == 5
    assert {*SEQUENCE_KINDS, *RAFT_SEQUENCE_KINDS} <= {*profile.kinds_of(1)}


def test_the_default_profile_knows_all_sequences_and_has_five_voters_in_each_world() -> None:
    profile = PROFILES["default"]
    assert set(SEQUENCE_KINDS) <= set(profile.kinds_of(1))
    seeds = range(1, 8 * len(profile.worlds) + 1)
    of_five = [profile.world(seed) for seed in seeds if profile.nodes_of(seed) == 5]
    assert sorted(of_five) == sorted(profile.worlds)
