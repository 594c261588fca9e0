"""For how long a leader may lead that no majority answers, also if it stands still meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from dledger.config import RaftConfig
from dledger.raft.messages import Heartbeat, HeartbeatResponse
from dledger.raft.raft_state import Role
from simulator.engine.violation import Violation
from simulator.invariants.raft.check_quorum import ANSWERED_ELECTIONS, LeadershipTimeLimits

CONFIG = RaftConfig()
ELECTION, HEARTBEAT = CONFIG.election_seconds, CONFIG.heartbeat_seconds
TERM = 3


class Leader:
    """A leader of three voters, which sends heartbeats, and what the check says of it."""

    def __init__(self) -> None:
        core = SimpleNamespace(
            node="n0",
            role=Role.LEADER,
            term=TERM,
            config=CONFIG,
            configuration=SimpleNamespace(quorums=(("n0", "n1", "n2"),), is_joint=False),
            configurations=SimpleNamespace(index=0),
        )
        self._host: Any = SimpleNamespace(
            name="n0", boot=1, own_time=0.0, node=SimpleNamespace(core=core)
        )
        self._check = LeadershipTimeLimits()

    def beats(self, after: float, *, answered: bool) -> None:
        """Sends the next heartbeats. Raises what the check says."""
        self._host.own_time += after
        self._check.sends(self._host, "n1", Heartbeat(TERM, 0, 1))
        if answered:
            self._check.receives(self._host, "n1", HeartbeatResponse(TERM, 0, 0, 1, 0))

    def seconds_unanswered(self, *intervals: float) -> float:
        """After how long the check objects to a leader that is not answered and sends heartbeats at
        these intervals, and then at the usual one."""
        began = self._host.own_time
        with pytest.raises(Violation, match="no majority has answered"):
            self._beats_unanswered([*intervals, *[HEARTBEAT] * 100])
        return float(self._host.own_time - began)

    def _beats_unanswered(self, intervals: Sequence[float]) -> None:
        for interval in intervals:
            self.beats(interval, answered=False)


@pytest.fixture
def leader() -> Leader:
    """One that was answered just now."""
    found = Leader()
    found.beats(0.0, answered=True)
    return found


def test_a_leader_leads_for_two_election_timeouts_without_answers(leader: Leader) -> None:
    seconds = leader.seconds_unanswered()
    assert seconds == pytest.approx(ANSWERED_ELECTIONS * ELECTION, abs=HEARTBEAT)


def test_a_leader_that_stood_still_may_ask_first(leader: Leader) -> None:
    seconds = leader.seconds_unanswered(0.9 * ELECTION)
    assert seconds > (0.9 + ANSWERED_ELECTIONS) * ELECTION


def test_a_leader_that_stands_still_again_and_again_may_not(leader: Leader) -> None:
    seconds = leader.seconds_unanswered(*[0.9 * ELECTION] * 20)
    assert seconds < (2 * 0.9 + ANSWERED_ELECTIONS + 0.9) * ELECTION


def test_a_leader_that_is_answered_leads_however_often_it_stands_still(leader: Leader) -> None:
    for _ in range(20):
        leader.beats(0.9 * ELECTION, answered=True)


def test_the_votes_of_an_election_are_answers(leader: Leader) -> None:
    """A leader that was elected just now, and that nobody has answered since."""
    elected = Leader()
    elected.beats(0.0, answered=False)
    found = elected.seconds_unanswered(0.9 * ELECTION)
    assert found == leader.seconds_unanswered(0.9 * ELECTION)
    again = Leader()
    again.beats(0.0, answered=False)
    assert (
        again.seconds_unanswered(*[0.9 * ELECTION] * 20) < (0.9 + ANSWERED_ELECTIONS + 1) * ELECTION
    )
