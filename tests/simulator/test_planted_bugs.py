"""The simulator is tested by bugs: one defence is taken out, and the right check must fire."""

from __future__ import annotations

import pytest

from simulator.cluster import simulate
from tests.simulator.planted import BUGS, Bug


@pytest.mark.parametrize("bug", BUGS, ids=[bug.plant.__name__ for bug in BUGS])
def test_a_planted_bug_is_found_by_the_right_check(
    bug: Bug, monkeypatch: pytest.MonkeyPatch
) -> None:
    bug.plant(monkeypatch)
    told: list[str] = []
    for seed in range(1, bug.seeds + 1):
        violation = simulate(seed, seconds=6.0).violation
        if violation is not None and bug.says in violation:
            return
        if violation is not None:
            told.append(f"seed {seed}: {violation}")
    pytest.fail(f"no check said {bug.says!r} in {bug.seeds} seeds; instead: {told}")
