"""Faults of several steps in whole brokers lead to their situations, and nothing breaks in them."""

from __future__ import annotations

import pytest

from simulator.faults.broker_sequences import BROKER_SEQUENCE_KINDS
from simulator.faults.damage_at_rest import DAMAGE_KINDS
from simulator.faults.derived_file_damage import PARTS
from simulator.faults.injector import FaultPlan
from simulator.runs.profiles import PROFILES
from simulator.worlds.registry import BROKERS, NODES, Run


@pytest.mark.minutes
@pytest.mark.parametrize(
    ("kind", "marks"),
    [
        ("leader dies unheard", ["successor asked before it serves"]),
        ("registration late", ["registration came late"]),
        (
            "dies with what was given",
            [
                "consumer died with messages just given to it",
                "leader died with messages just given out",
            ],
        ),
    ],
)
def test_a_kind_of_fault_leads_to_its_situation(kind: str, marks: list[str]) -> None:
    """Repeat it with ``Run(1, world=BROKERS, seconds=6.0, plan=FaultPlan.of((kind,))).play()``."""
    outcome = Run(1, world=BROKERS, seconds=6.0, plan=FaultPlan.of((kind,))).play()
    assert outcome.violation is None
    assert [mark for mark in marks if mark not in outcome.marks] == []


@pytest.mark.minutes
@pytest.mark.parametrize(("seed", "left"), [(3, "ConsumeQueue"), (6, "checkpoint")])
def test_all_that_is_derived_is_damaged_and_repaired(seed: int, left: str) -> None:
    """Never both of those on one machine."""
    kinds = (
        "checkpoint damaged",
        "key index damaged",
        "entry index damaged",
        "ConsumeQueue damaged",
    )
    outcome = Run(seed, world=BROKERS, seconds=8.0, plan=FaultPlan.of(kinds)).play()
    assert outcome.violation is None
    assert [part for part in PARTS if f"{part} damaged at rest" not in outcome.marks] == [left]


def test_the_long_profiles_draw_all_of_them() -> None:
    nightly = PROFILES["nightly"]
    brokers = next(seed for seed in range(10) if nightly.world(seed) != NODES)
    assert {*BROKER_SEQUENCE_KINDS, *DAMAGE_KINDS} <= {*nightly.kinds_of(brokers)}
    assert {*BROKER_SEQUENCE_KINDS} <= {*PROFILES["default"].kinds_of(1)}
