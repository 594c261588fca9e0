"""Check-quorum: when a leader steps down that hears nobody, and whose ticks are late."""

from __future__ import annotations

import pytest

from dledger.config import RaftConfig
from dledger.raft.leader import ANSWER_HEARTBEATS
from dledger.raft.raft_state import Role
from tests.dledger.raft.core_cluster import Cluster

CONFIG = RaftConfig()
ELECTION, HEARTBEAT = CONFIG.election_seconds, CONFIG.heartbeat_seconds
INTERVALS = [
    0.4 * ELECTION,
    0.6 * ELECTION,
    0.9 * ELECTION,
    1.1 * ELECTION,
    1.9 * ELECTION,
    2.1 * ELECTION,
]
"""Of ticks, from a little late to so late that others have elected somebody."""


def led() -> Cluster:
    """A group that n0 leads, and that has answered it."""
    cluster = Cluster(("n0", "n1", "n2"), config=CONFIG)
    cluster.tick("n0")
    cluster.run(0.5 * HEARTBEAT)
    assert cluster.cores["n0"].role is Role.LEADER
    return cluster


def ticked_late(cluster: Cluster, interval: float) -> bool:
    """Whether n0 still leads after its next tick."""
    cluster.now += interval
    cluster.tick("n0")
    return cluster.cores["n0"].role is Role.LEADER


@pytest.mark.parametrize("interval", INTERVALS)
def test_a_leader_that_is_cut_off_steps_down_however_late_its_ticks_are(interval: float) -> None:
    cluster = led()
    cluster.cuts.update(dict.fromkeys([("n1", "n0"), ("n2", "n0")], True))
    began = cluster.now
    while ticked_late(cluster, interval):
        cluster.deliver_all()
        assert cluster.now - began < 2 * ELECTION + ANSWER_HEARTBEATS * HEARTBEAT + 2 * interval


@pytest.mark.parametrize("interval", INTERVALS)
def test_a_leader_whose_ticks_are_late_leads_for_as_long_as_it_is_answered(interval: float) -> None:
    """Unless it stood still for so long that others lead by now."""
    cluster = led()
    for _ in range(20):
        if not ticked_late(cluster, interval):
            assert interval > 2 * ELECTION
            return
        cluster.deliver_all()
    assert interval < 2 * ELECTION


def test_who_stood_still_for_long_steps_down_at_the_first_tick() -> None:
    assert not ticked_late(led(), 2.01 * ELECTION)
