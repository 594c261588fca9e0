"""Whole clusters whose clients have transactions: published once, or never, whatever happens."""

from __future__ import annotations

import pytest

from simulator.faults.injector import FaultPlan
from simulator.worlds.registry import TRANSACTIONS, Run
from simulator.worlds.runner import play
from simulator.worlds.transactions import Transactions

SECONDS = 8.0


@pytest.mark.minutes
@pytest.mark.parametrize("seed", [2, 3, 6])
def test_transactions_are_published_once_and_as_decided(seed: int) -> None:
    """Repeat one with ``python -m simulator replay SEED --profile transactions --minutes 0.1334``,
    about as long."""
    cluster = Run(seed, world=TRANSACTIONS).cluster()
    outcome = play(cluster, lambda made: made.run(SECONDS))
    assert outcome.violation is None, f"seed {seed} ({outcome.plan}): {outcome.violation}"
    assert len(cluster.workload(Transactions).published.published) > 5


@pytest.mark.minutes
def test_without_faults_all_that_was_decided_to_be_committed_is_published() -> None:
    cluster = Run(1, world=TRANSACTIONS, plan=FaultPlan((), 1.0)).cluster()
    outcome = play(cluster, lambda made: made.run(SECONDS))
    assert outcome.violation is None
    decided = {
        number
        for number, commit in cluster.workload(Transactions).history.outcomes.items()
        if commit
    }
    assert set(cluster.workload(Transactions).published.published) == decided
    assert len(decided) > 10
