"""Which faults a run has: each kind is drawn by its name."""

from __future__ import annotations

from simulator.faults.injector import FaultPlan
from simulator.faults.kinds import DRAWN_FOR_BROKERS, NODE_FAULTS
from simulator.worlds.registry import Run

SEEDS = range(1, 41)


def test_a_new_kind_of_fault_changes_no_run_that_does_not_have_it() -> None:
    had = 0
    for seed in SEEDS:
        before = FaultPlan.drawn(seed, DRAWN_FOR_BROKERS)
        after = FaultPlan.drawn(seed, ("earthquake", *DRAWN_FOR_BROKERS))
        had += "earthquake" in after.kinds
        assert [kind for kind in after.kinds if kind != "earthquake"] == [*before.kinds]
        assert after.pause_max == before.pause_max
    assert len(SEEDS) / 4 < had < len(SEEDS) * 3 / 4


def test_a_run_is_the_same_with_a_fault_that_it_could_have_and_has_not() -> None:
    """Repeat it with ``Run(1, seconds=3.0, kinds=...).play()``."""
    (drawn, *_) = FaultPlan.drawn(1, [*NODE_FAULTS]).kinds
    absent = next(kind for kind in NODE_FAULTS if kind not in FaultPlan.drawn(1, [kind]).kinds)
    one = Run(1, seconds=3.0, kinds=(drawn,)).play()
    assert Run(1, seconds=3.0, kinds=(absent, drawn)).play().digest == one.digest
