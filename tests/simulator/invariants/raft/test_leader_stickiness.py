"""Who hears a leader, by its own clock, and which votes were given before."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest

from dledger.raft.messages import Heartbeat, VoteRequest, VoteResponse
from simulator.engine.violation import Violation
from simulator.hosts.host import Host
from simulator.invariants.raft.leader_stickiness import LeaderStickiness
from simulator.worlds.cluster import Cluster
from tests.simulator.hosts.test_host import others, run, serving, settle


def vote_after(rate: float, share: float) -> None:
    """A voter whose clock runs so fast gives its vote when that share of an election timeout has
    passed, in true time, since it heard its leader. Raises what the check says of it.
    """

    async def script(cluster: Cluster[Any]) -> None:
        leader = await serving(cluster)
        voter, candidate = others(cluster, leader)
        voter.crash()
        voter.clock.rate = rate
        voter.start()
        await cluster.pass_time(5.0)
        assert leader.node is not None
        core, check = leader.node.core, LeaderStickiness()
        term = core.term
        check.receives(voter, leader.name, Heartbeat(term, core.commit_index, 1))
        await cluster.pass_time(share * core.config.election_seconds)
        request = VoteRequest(term + 1, core.entry_cache.last_index, term, False, False, 0)
        found.append(said_of(check, voter, candidate, request))
        await settle(cluster)

    found: list[Violation | None] = []
    run(script)
    if found[0]:
        raise found[0]


def said_of(
    check: LeaderStickiness, voter: Host, candidate: Host, request: VoteRequest
) -> Violation | None:
    """What the check says of a vote that is given to who asks so."""
    check.receives(voter, candidate.name, request)
    try:
        given = VoteResponse(request.term, True, request.pre_vote, 0, 0)
        check.sends(voter, candidate.name, given)
    except Violation as violation:
        return violation
    return None


@pytest.mark.parametrize(("rate", "share"), [(1.0, 0.98), (1.03, 0.95), (0.97, 1.01)])
def test_who_hears_a_leader_by_its_own_clock_may_not_vote(rate: float, share: float) -> None:
    with pytest.raises(Violation, match="though it hears"):
        vote_after(rate, share)


@pytest.mark.parametrize(("rate", "share"), [(1.0, 1.01), (1.03, 0.98), (0.97, 1.05)])
def test_who_hears_none_any_more_by_its_own_clock_may(rate: float, share: float) -> None:
    vote_after(rate, share)


def asked_by(candidate: str, *, vote: str, pre_vote: bool, terms_before: int = 0) -> None:
    """A voter that hears "the leader" of its term, and gave its vote in that term to ``vote``, is
    asked for its vote again by ``candidate``, in that term or an earlier one, and gives it. Raises
    what the check says of it."""

    async def script(cluster: Cluster[Any]) -> None:
        leader = await serving(cluster)
        voter, another = others(cluster, leader)
        hosts = {"the leader": leader, "another": another}
        await cluster.pass_time(1.0)
        assert leader.node is not None
        assert voter.node is not None
        core, check = leader.node.core, LeaderStickiness()
        check.receives(voter, leader.name, Heartbeat(core.term, core.commit_index, 1))
        asked, last_index = core.term - terms_before, core.entry_cache.last_index
        request = VoteRequest(asked, last_index, core.term, pre_vote, False, 0)
        with patch.object(voter.node.core.raft_state, "vote", hosts[vote].name):
            found.append(said_of(check, voter, hosts[candidate], request))
        await settle(cluster)

    found: list[Violation | None] = []
    run(script)
    if found[0]:
        raise found[0]


def test_a_vote_that_was_given_before_the_leader_was_heard_may_be_told_later() -> None:
    asked_by("another", vote="another", pre_vote=False)


def test_so_may_one_of_an_earlier_term() -> None:
    """It waited for a slow disk, and its request came twice."""
    asked_by("another", vote="the leader", pre_vote=False, terms_before=1)


@pytest.mark.parametrize("pre_vote", [True, False])
def test_the_leader_itself_may_be_given_a_vote(pre_vote: bool) -> None:
    asked_by("the leader", vote="the leader", pre_vote=pre_vote)


@pytest.mark.parametrize(("vote", "pre_vote"), [("another", True), ("the leader", False)])
def test_no_other_may_be_given_while_the_leader_is_heard(vote: str, pre_vote: bool) -> None:
    with pytest.raises(Violation, match="though it hears"):
        asked_by("another", vote=vote, pre_vote=pre_vote)
