"""Whole clusters whose clients have transactions: published once, or never, whatever happens."""

from __future__ import annotations

import pytest

from simulator.faults.injector import FaultPlan
from simulator.worlds.runner import play
from simulator.worlds.transactions import TransactionalCluster

SECONDS = 8.0


@pytest.mark.parametrize("seed", [2, 3, 6])
def test_transactions_are_published_once_and_as_decided(seed: int) -> None:
    """Repeat one with ``python -m simulator replay SEED --profile transactions --minutes 0.1334``,
    about as long."""
    cluster = TransactionalCluster(seed)
    outcome = play(cluster, lambda made: made.run(SECONDS))
    assert outcome.violation is None, f"seed {seed} ({outcome.plan}): {outcome.violation}"
    assert len(cluster.published.published) > 5


def test_without_faults_all_that_was_decided_to_be_committed_is_published() -> None:
    cluster = TransactionalCluster(1, plan=FaultPlan((), 1.0))
    outcome = play(cluster, lambda made: made.run(SECONDS))
    assert outcome.violation is None
    decided = {number for number, commit in cluster.paying.outcomes.items() if commit}
    assert set(cluster.published.published) == decided
    assert len(decided) > 10
