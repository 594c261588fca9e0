"""The repair that a damaged machine owes, by what its peers have."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from simulator.invariants.damage_repaired import PASSES, DamageRepaired

DOWN, REFUSES = -1, -2


def _machine(first_index: int, damage: tuple[int, ...] = ()) -> Any:
    node = SimpleNamespace(
        store=SimpleNamespace(first_index=first_index),
        scrubber=SimpleNamespace(damage=dict.fromkeys(damage, ""), passes=0),
    )
    return SimpleNamespace(
        name=str(id(node)),
        boot=1,
        damaged=bool(damage),
        damaged_parts={},
        node=node if first_index >= 0 else None,
        kept_from_running=first_index == REFUSES,
        refuses=first_index == REFUSES,
        process=None if first_index == REFUSES else object(),
    )


@pytest.mark.parametrize(
    ("others", "excused"),
    [
        pytest.param((0, 0), False, id="both others have it"),
        pytest.param((0, 9), False, id="one other has it"),
        pytest.param((9, DOWN), False, id="one other may have it and will be back"),
        pytest.param((9, 9), True, id="all others have expired it"),
        pytest.param((9, REFUSES), True, id="the only one that may have it will not be back"),
    ],
)
def test_only_what_no_other_can_give_may_stay_damaged(
    others: tuple[int, int], excused: bool
) -> None:
    damaged = _machine(0, damage=(5,))
    repaired = DamageRepaired([damaged, *map(_machine, others)])
    damaged.node.scrubber.passes = PASSES
    assert repaired() is excused
    damaged.node.scrubber.passes = sys.maxsize
    damaged.node.scrubber.damage.clear()
    assert repaired()


@pytest.mark.parametrize(
    ("others", "voters", "excused"),
    [
        pytest.param((0, 0), "abc", False, id="both others have it"),
        pytest.param((9, 0), "abc", False, id="one other has it"),
        pytest.param((9, 9), "abc", False, id="all others have what it has or refill it"),
        pytest.param((9, DOWN), "abc", False, id="one other will be back"),
        pytest.param((0, REFUSES), "abc", False, id="one other has all, and one does not run"),
        pytest.param((9, REFUSES), "abc", True, id="the only one that may have it does not run"),
        pytest.param((0, 0), "bc", True, id="it was removed"),
    ],
)
def test_a_node_that_waits_for_entries_gets_them_or_is_refilled(
    others: tuple[int, int], voters: str, excused: bool
) -> None:
    waits, *peers = machines = [_machine(DOWN), *map(_machine, others)]
    waits.damaged = waits.kept_from_running = True
    for name, machine in zip("abc", machines, strict=True):
        machine.name = name
        if machine.node is not None:
            found = SimpleNamespace(voters=voters, learners=())
            machine.node.core = SimpleNamespace(configuration=found)
    assert DamageRepaired([waits, *peers])() is excused
