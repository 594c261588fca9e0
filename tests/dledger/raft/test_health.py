"""What a core makes of the health that it is told: of its own, and of its peers'."""

from __future__ import annotations

from random import Random

import pytest

from dledger.config import RaftConfig
from dledger.raft.configuration import Configuration, Configurations, MemberAddress
from dledger.raft.core import Raft
from dledger.raft.entry_cache import EntryCache
from dledger.raft.health import HEALTHY, UNHEALTHY_DELAY_FACTOR, OwnHealth
from dledger.raft.messages import VoteRequest, VoteResponse
from dledger.raft.raft_state import Role

LATE = 100.0
"""Seconds after which every election timeout has passed."""


VOTERS = Configuration(("n0", "n1", "n2"))


def core(health: OwnHealth = HEALTHY, members: Configuration = VOTERS) -> Raft:
    """n0 of three, whose peers are reached."""
    made = Raft(
        node="n0",
        configurations=Configurations(members),
        log=EntryCache(),
        segment_size=1 << 20,
        rng=Random(1),
        now=0.0,
        config=RaftConfig(),
        health=health,
    )
    for peer in ("n1", "n2"):
        made.peer_connected(peer, 0.0)
    return made


def campaigns(node: Raft) -> bool:
    """Whether the node asks for votes once nobody was heard for long."""
    node.take()
    node.tick(LATE)
    return any(isinstance(each.message, VoteRequest) for each in node.take().messages)


def grants(node: Raft) -> bool:
    node.take()
    node.receive("n1", VoteRequest(1, 0, 1, pre_vote=False), LATE)
    ready = node.take()
    then = [] if ready.write is None else ready.write.then
    [answer] = [each.message for each in (*ready.messages, *then)]
    assert isinstance(answer, VoteResponse)
    return answer.granted


@pytest.mark.parametrize(
    ("health", "asks", "votes"),
    [
        (HEALTHY, True, True),
        (OwnHealth(room=False), True, True),
        (OwnHealth(prompt=False), False, True),
        (OwnHealth(intact=False), False, True),
        (OwnHealth(agrees=False), False, True),
        (OwnHealth(holds_confirmed=False), False, False),
    ],
)
@pytest.mark.parametrize("from_the_start", [True, False])
def test_health_says_who_campaigns_and_who_votes_from_the_first_moment_on(
    health: OwnHealth, asks: bool, votes: bool, from_the_start: bool
) -> None:
    def node() -> Raft:
        made = core(health if from_the_start else HEALTHY)
        if not from_the_start:
            made.health_changed(health)
        return made

    assert campaigns(node()) == asks
    assert grants(node()) == votes


def test_a_damaged_node_campaigns_while_all_others_say_that_they_are_damaged() -> None:
    node = core(OwnHealth(intact=False))
    node.health_reported("n1", healthy=False, intact=False)
    assert not node.campaigns
    node.health_reported("n2", healthy=False, intact=False)
    assert node.campaigns
    node.health_unknown("n2")
    assert not node.campaigns


def test_a_learner_that_is_whole_keeps_no_damaged_voter_from_campaigning() -> None:
    learner = MemberAddress("h:1", "h:2", "h:3")
    node = core(OwnHealth(intact=False), VOTERS.with_learner("n3", learner))
    for voter in ("n1", "n2"):
        assert not node.campaigns
        node.health_reported(voter, healthy=False, intact=False)
    assert node.campaigns
    assert campaigns(node)


def test_what_contradicts_the_group_campaigns_not_even_then() -> None:
    node = core(OwnHealth(intact=False, agrees=False))
    for peer in ("n1", "n2"):
        node.health_reported(peer, healthy=False, intact=False)
    assert not campaigns(node)


def test_a_node_without_room_waits_several_times_as_long() -> None:
    in_time, late = core(), core()
    late.health_changed(OwnHealth(room=False))
    for node in (in_time, late):
        node.receive("n1", VoteRequest(1, 0, 1, pre_vote=False), LATE)
        assert node.role is Role.FOLLOWER
    assert late.deadline() - LATE == pytest.approx(
        UNHEALTHY_DELAY_FACTOR * (in_time.deadline() - LATE)
    )
