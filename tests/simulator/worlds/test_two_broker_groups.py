"""Two broker groups in one world: clients of both, and faults on either."""

from __future__ import annotations

import pytest

from simulator.faults.injector import FaultPlan
from simulator.worlds.registry import GROUPS, Run


@pytest.mark.minutes
def test_clients_of_two_groups_keep_what_both_promise() -> None:
    """Repeat it with ``Run(1, world=GROUPS, seconds=5.0, plan=plan).play(print)``."""
    plan = FaultPlan.of(("crash", "pause", "client cut off"))
    outcome = Run(1, world=GROUPS, seconds=5.0, plan=plan).play()
    assert outcome.violation is None
    assert outcome.acknowledged > 20
    struck = {host for action in outcome.schedule for host in action.hosts}
    assert any(host.startswith("n1") and len(host) == len("n10") for host in struck)
    assert struck & {"n0", "n1", "n2"}
