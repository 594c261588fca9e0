"""Clients that read at any broker: what they read is the newest, whoever leads."""

from __future__ import annotations

import pytest

from simulator.faults.injector import FaultPlan
from simulator.worlds.registry import FOLLOWERS, Run


@pytest.mark.minutes
def test_followers_answer_reads_by_index_while_leaders_change() -> None:
    """Repeat it with ``Run(2, world=FOLLOWERS, seconds=8.0, plan=plan).play(print)``."""
    plan = FaultPlan.of(("crash", "partition", "pause"))
    outcome = Run(2, world=FOLLOWERS, seconds=8.0, plan=plan).play()
    assert outcome.violation is None
    assert outcome.marks["follower read by index"] >= 1
    assert outcome.last_term > 1
