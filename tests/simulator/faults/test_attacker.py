"""The attacker at the peers' port: what it may be, that it strikes, and that nobody believes it."""

from __future__ import annotations

import pytest

from simulator.bugs.planted_bug import Bug, planted
from simulator.bugs.raft.impostors import bug as impostors
from simulator.faults.attacker import CERTIFICATES, FORGERIES
from simulator.faults.injector import FaultPlan
from simulator.faults.node_faults import ATTACKER
from simulator.faults.schedule import Action, ScheduleError, parse_action
from simulator.worlds.registry import BROKERS, GROUPS, NODES, Run

EVERY_ATTACK = [
    Action(1.0 + 0.05 * place, "attack", ("n0", "n1", certificate, forgery))
    for place, (certificate, forgery) in enumerate(
        (certificate, forgery) for certificate in CERTIFICATES for forgery in FORGERIES
    )
]


@pytest.mark.parametrize("world", [NODES, BROKERS])
def test_no_certificate_that_is_not_the_members_and_no_forgery_gets_in(world: str) -> None:
    lines: list[str] = []
    outcome = Run(5, world=world, seconds=4.0, schedule=EVERY_ATTACK).play(lines.append)
    assert outcome.violation is None
    refused = [line for line in lines if "refuses who says it is n1" in line]
    assert len(refused) == len(EVERY_ATTACK)
    assert not [line for line in lines if "takes " in line and " for n1" in line]


def test_attacks_strike_in_the_profile() -> None:
    lines: list[str] = []
    Run(3, seconds=6.0, plan=FaultPlan.of([ATTACKER])).play(lines.append)
    assert [line for line in lines if "refuses who says it is" in line]


@pytest.mark.parametrize("bug", impostors.bugs, ids=lambda bug: str(bug.id))
def test_a_node_that_believes_an_attacker_breaks_a_promise(bug: Bug) -> None:
    schedule = [
        Action(1.0 + 0.05 * place, "attack", (victim, peer, *action.arguments[2:]))
        for place, (action, victim, peer) in enumerate(
            (action, victim, peer)
            for action in EVERY_ATTACK
            for victim, peer in (("n0", "n1"), ("n1", "n2"), ("n2", "n0"))
        )
    ]
    with planted(bug):
        outcome = Run(5, seconds=8.0, schedule=schedule).play()
    assert bug.explains(outcome.violation)


def test_members_of_two_groups_do_not_talk_to_each_other() -> None:
    lines: list[str] = []
    Run(1, world=GROUPS, seconds=1.0).play(lines.append)
    linked = [line for line in lines if "link n1" in line and " up" in line]
    assert linked
    assert not [line for line in linked if " n0 " in line and "link n10" in line]


@pytest.mark.parametrize("line", ["at 1 attack n0 n1 mine votes", "at 1 attack n0 n1 nothing war"])
def test_what_is_no_attack_is_refused(line: str) -> None:
    with pytest.raises(ScheduleError, match="an attacker "):
        parse_action(line)
