"""Whole clusters with requests, and consumers that select by SQL92, whatever fails."""

from __future__ import annotations

import pytest

from simulator.faults.injector import FaultPlan
from simulator.worlds.outcome import Outcome
from simulator.worlds.registry import ASKING, NODES, WORLDS, Run
from simulator.worlds.request_reply import RequestReply
from simulator.worlds.runner import play

SECONDS = 5.0


def run(seed: int, plan: FaultPlan | None = None) -> tuple[RequestReply, Outcome]:
    cluster = Run(seed, world=ASKING, plan=plan).cluster()
    outcome = play(cluster, lambda cluster: cluster.run(SECONDS))
    return cluster.workload(RequestReply), outcome


@pytest.mark.minutes
@pytest.mark.parametrize("seed", [1, 2])
def test_requests_are_answered_and_only_what_is_selected_is_delivered(seed: int) -> None:
    _, outcome = run(seed)
    assert outcome.violation is None, f"seed {seed} ({outcome.plan}): {outcome.violation}"
    assert outcome.marks["request answered"]
    assert outcome.marks["message passed over by an expression"]


@pytest.mark.minutes
def test_those_who_ask_and_answer_crash_too_and_every_promise_is_kept() -> None:
    _, outcome = run(6, FaultPlan(("client crash",), 0.4))
    assert outcome.violation is None
    crashed = {each.arguments[0] for each in outcome.schedule if each.name == "crash-client"}
    assert crashed & {"q0", "a0", "a1"}


@pytest.mark.parametrize("world", [world for world in WORLDS if world != NODES])
def test_all_clients_of_a_world_are_struck_by_faults_of_clients(world: str) -> None:
    cluster = Run(1, world=world).cluster()
    clients = [each.name for each in cluster.clients if each.name != "ns"]
    assert sorted(cluster.target_clients) == sorted(clients)
    cluster.switch_off()


@pytest.mark.minutes
def test_nothing_moves_any_more_once_those_who_answer_have_left_their_group() -> None:
    """Who takes over a queue, and finds nothing that is selected in it, commits how far it is."""
    outcome = Run(3, world=ASKING, seconds=20.0).play()
    assert outcome.violation is None


@pytest.mark.minutes
def test_without_faults_every_selected_question_is_answered() -> None:
    asking, outcome = run(4, FaultPlan((), 1.0))
    assert outcome.violation is None
    selected = [sent for sent in asking.questions.sent if sent.number % 4 in (1, 2)]
    assert len(selected) >= 3
    assert asking.questions.acknowledged == len(selected)
    assert asking.questions.delivered == len(selected)
