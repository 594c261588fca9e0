"""Whole clusters whose messages wait: each is delivered once and not early, whatever fails."""

from __future__ import annotations

import pytest

import broker.scheduled.delay_level_dispatcher
import broker.scheduled.timer_dispatcher
import simulator.workload.scheduled_producer
from broker.state.commands import Schedule, Timer
from simulator.faults.injector import FaultPlan
from simulator.worlds.outcome import Outcome
from simulator.worlds.registry import WAITING, Run
from simulator.worlds.runner import play
from simulator.worlds.scheduled_messages import ScheduledMessages

SECONDS = 8.0
CRASHES = FaultPlan(("crash",), 1.0)


def run(seed: int, plan: FaultPlan | None = None) -> tuple[ScheduledMessages, Outcome]:
    cluster = Run(seed, world=WAITING, plan=plan).cluster()
    outcome = play(cluster, lambda cluster: cluster.run(SECONDS))
    return cluster.workload(ScheduledMessages), outcome


@pytest.mark.minutes
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_waits_is_delivered_once_and_not_early(seed: int) -> None:
    waiting, outcome = run(seed)
    assert outcome.violation is None, f"seed {seed} ({outcome.plan}): {outcome.violation}"
    assert waiting.later.acknowledged > 10


@pytest.mark.minutes
def test_without_faults_it_all_arrives() -> None:
    waiting, outcome = run(4, FaultPlan((), 1.0))
    assert outcome.violation is None
    later = waiting.later
    assert later.delivered == later.acknowledged - later.recalled > 20
    assert later.recalled > 3
    assert waiting.waited.waiting == []


def test_a_mark_that_stays_behind_is_found_when_another_leads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        broker.scheduled.delay_level_dispatcher,
        "Schedule",
        lambda level, offset: Schedule(level, offset - 1),
    )
    _, outcome = run(4, CRASHES)
    assert "is delivered 2 times and was stored 1 times to wait" in str(outcome.violation)


@pytest.mark.minutes
def test_a_mark_that_runs_ahead_is_found_when_another_leads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        broker.scheduled.timer_dispatcher, "Timer", lambda time, *more: Timer(time + 500, *more)
    )
    # It also forgets what was taken back, which would be found first.
    monkeypatch.setattr(simulator.workload.scheduled_producer, "RECALLED_SHARE", 0.0)
    _, outcome = run(4, CRASHES)
    assert "every message is delivered: not within" in str(outcome.violation)
