"""Brokers, NameServer, producers and consumers as shipped, in one process: promises and repeats."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from simulator.faults.injector import FaultPlan
from simulator.faults.schedule import parse_action
from simulator.worlds.cluster import Cluster
from simulator.worlds.messages import Messages
from simulator.worlds.outcome import Outcome
from simulator.worlds.registry import BROKERS, Run
from simulator.worlds.runner import play
from tests.support.search_effort import sample

SECONDS = 8.0


def run(
    seed: int, *, nodes: int = 3, plan: FaultPlan | None = None
) -> tuple[Cluster[Any], Outcome]:
    cluster = Run(seed, world=BROKERS, nodes=nodes, plan=plan).cluster()
    outcome = play(cluster, lambda cluster: cluster.run(SECONDS))
    return cluster, outcome


@pytest.mark.parametrize("seed", sample([5, 2, 7, 12, 21]))
def test_every_promise_is_kept_towards_clients(seed: int) -> None:
    cluster, outcome = run(seed, nodes=5 if seed == 12 else 3)
    assert outcome.violation is None, f"seed {seed} ({outcome.plan}): {outcome.violation}"
    messages = cluster.workload(Messages)
    assert messages.history.acknowledged > 50
    assert len(messages.registers.operations) > 5


def test_without_faults_every_message_is_acknowledged_and_none_is_stored_twice() -> None:
    cluster, outcome = run(4, plan=FaultPlan((), 1.0))
    assert outcome.violation is None
    assert outcome.last_term == 1
    history = cluster.workload(Messages).history
    assert history.unknown == 0
    assert history.delivered == history.acknowledged > 100
    assert not any(mark.startswith("message sent again") for mark in outcome.marks)


@pytest.mark.processes
def test_a_run_is_a_function_of_its_seed_and_not_of_the_order_in_sets() -> None:
    _, here = run(6)
    script = (
        "from simulator.worlds.registry import BROKERS, Run; "
        f"print(Run(6, world=BROKERS, seconds={SECONDS}).play().digest)"
    )
    for hash_seed in ("0", "77"):
        there = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert there.stdout.strip() == here.digest


def played(seed: int, *lines: str) -> Outcome:
    schedule = [parse_action(line) for line in lines]
    return Run(seed, world=BROKERS, seconds=8.0, schedule=schedule).play()


@pytest.mark.minutes
def test_a_broker_that_loses_its_disk_is_refilled_and_counts_again() -> None:
    outcome = played(4, "at 3.0 wipe-disk n1", "at 3.5 start n1")
    assert outcome.violation is None
    assert outcome.marks["disk replaced by an empty one"] == 1
    assert outcome.marks["voter counts again on another disk"] == 1


@pytest.mark.minutes
def test_the_disks_of_a_majority_are_never_wiped() -> None:
    wiped = [f"at {at}.0 wipe-disk n{at % 3}" for at in range(3, 6)]
    outcome = played(4, *wiped, *(f"at {at}.5 start n{at % 3}" for at in range(3, 6)))
    assert outcome.violation is None
    assert outcome.marks["disk replaced by an empty one"] == 1


def test_a_broker_leaves_its_group_and_comes_back_under_load() -> None:
    outcome = played(
        5,
        "at 2.0 remove-member n2",
        "at 4.0 add-member n2",
        "at 6.0 add-member n2",
        "at 7.0 hand-over n2",
    )
    assert outcome.violation is None
    done = {"removal", "addition", "promotion", "handing over"}
    assert done <= outcome.marks.keys()


def test_no_disk_is_damaged_while_every_voter_that_is_left_is_needed() -> None:
    outcome = played(5, "at 2.0 remove-member n2", "at 4.0 flip-bit n1 0.5 3", "at 5.0 start n1")
    assert outcome.violation is None
    assert outcome.marks["removal"] == 1
    assert "disk damaged at rest" not in outcome.marks


def test_no_member_is_removed_while_the_disk_of_another_does_not_count() -> None:
    """The leader has not noticed yet; and dies before it can call the removal off."""
    outcome = played(
        5,
        *(f"at 2.0 cut n{at} n1 silent" for at in (0, 2)),
        *(f"at 2.0 cut n1 n{at} silent" for at in (0, 2)),
        "at 2.05 wipe-disk n1",
        "at 2.06 remove-member n2",
        "at 2.5 crash n0",
        "at 2.5 crash n2",
    )
    assert outcome.violation is None
    assert outcome.marks["disk replaced by an empty one"] == 1
    assert "removal" not in outcome.marks


@pytest.mark.minutes
def test_a_preferred_leader_is_handed_the_leadership() -> None:
    cluster, outcome = run(3, plan=FaultPlan((), 1.0))
    assert outcome.violation is None
    assert outcome.marks["handed over to the preferred leader"]
    leader = cluster.leader()
    assert leader is not None
    assert leader.name == cluster.group.raft.preferred_leader
