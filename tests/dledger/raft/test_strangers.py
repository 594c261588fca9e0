"""Peers that are no members, and members that say what no member says: what a core lets them do."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest

from dledger.config import RaftConfig
from dledger.errors import PeerError
from dledger.raft.configuration import Configuration, Configurations
from dledger.raft.core import Raft
from dledger.raft.entry_cache import EntryCache
from dledger.raft.messages import (
    AppendAccepted,
    AppendRejected,
    AppendRequest,
    Heartbeat,
    HeartbeatResponse,
    RaftMessage,
    ReadRequest,
    ReadResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from dledger.raft.raft_state import STRANGER_ELECTIONS, Role
from dledger.raft.read_index import READS_WAITING_MAX
from dledger.raft.replication_evidence import MemberEvidence
from dledger.raft.term_bound import DISTANCE_MAX, JUMP_MAX, RISE_PER_SECOND, TERM_MAX
from tests.dledger.raft.core_cluster import Cluster
from tests.dledger.raft.invariants import Invariants
from tests.dledger.raft.written_log import next_entry, written_log

NOBODY_LEADS = STRANGER_ELECTIONS * RaftConfig().election_seconds


def core(*terms: int, term: int = 9, voters: tuple[str, ...] = ("n0", "n1", "n2")) -> Raft:
    """n0, with such a log of which nothing is known to be committed."""
    log = EntryCache()
    for entry in written_log(terms):
        log.append(entry)
    return Raft(
        node="n0",
        configurations=Configurations(Configuration(voters)),
        log=log,
        segment_size=1 << 20,
        rng=Random(1),
        now=0.0,
        config=RaftConfig(),
        term=term,
        incarnation=50,
    )


def group(seed: int = 0) -> Cluster:
    """Three, one of which leads."""
    seen = Invariants()
    cluster = seen.cluster = Cluster(("n0", "n1", "n2"), [seen], seed=seed)
    cluster.run(3.0)
    assert leader_of(cluster)
    return cluster


def leader_of(cluster: Cluster) -> str:
    [leader] = [name for name, core in cluster.cores.items() if core.role is Role.LEADER]
    return leader


def says(cluster: Cluster, sender: str, to: str, message: RaftMessage) -> None:
    """The node hears it; a :class:`PeerError` is all that may come of it."""

    def hear(core: Raft) -> None:
        with suppress(PeerError):
            core.receive(sender, message, cluster.now)

    cluster._event(to, hear)


def everything_of_a_leader(term: int) -> list[RaftMessage]:
    entries = tuple(written_log([term]))
    return [
        Heartbeat(term, 1 << 40, 1, (MemberEvidence("n0", 50, 1 << 40),)),
        AppendRequest(term, -1, 0, 1 << 40, entries),
        AppendRequest(term, -1, 0, 1 << 40, ()),
        TimeoutNow(term),
    ]


@pytest.mark.parametrize("ahead", [0, 1, 1000, 1 << 62])
def test_a_stranger_does_not_lead_where_a_member_does(ahead: int) -> None:
    cluster = group()
    leader, term = leader_of(cluster), cluster.cores["n0"].term
    for node in cluster.names:
        for message in everything_of_a_leader(term + ahead):
            says(cluster, "n9", node, message)
        says(cluster, "n9", node, VoteRequest(term + ahead, 1 << 40, 1 << 40, False, ordered=True))
        says(cluster, "n9", node, HeartbeatResponse(term + ahead, -1, -1))
        says(cluster, "n9", node, AppendRejected(term + ahead, 1, 1, 1))
        says(cluster, "n9", node, VoteResponse(term + ahead, False, False))
    cluster.run(3.0)
    assert leader_of(cluster) == leader
    assert {core.term for core in cluster.cores.values()} == {term}


def test_the_same_term_as_the_leader_is_told_to_be_a_lie() -> None:
    cluster = group()
    term = cluster.cores["n0"].term
    for node in cluster.names:
        with pytest.raises(PeerError, match=f"and n9 both lead term {term}"):
            cluster.cores[node].receive("n9", Heartbeat(term, 0), cluster.now)


def test_a_stranger_is_heard_where_no_member_has_led_for_long() -> None:
    """It may be a voter by an entry that is not here yet."""
    node = core(1, 1)
    request = VoteRequest(10, 5, 2, pre_vote=False)
    node.receive("n9", request, NOBODY_LEADS - 0.01)
    assert (node.vote, node.term) == ("", 9)
    node.receive("n9", request, NOBODY_LEADS)
    assert (node.vote, node.term) == ("n9", 10)
    node.receive("n9", Heartbeat(10, -1), NOBODY_LEADS)
    assert node.leader == "n9"
    entry = next_entry(node.entry_cache, 10, node.entry_cache.end_position, b"x")
    node.receive("n9", AppendRequest(10, 1, 1, 1, (entry,)), NOBODY_LEADS)
    assert (node.entry_cache.last_index, node.commit_index) == (2, 1)


def test_a_stranger_that_was_voted_for_breaks_off_no_election() -> None:
    node = core(1, 1)
    node.receive("n9", VoteRequest(10, 5, 2, pre_vote=False), NOBODY_LEADS)
    node.receive("n9", Heartbeat(10, -1), NOBODY_LEADS)
    node.peer_connected("n1", NOBODY_LEADS)
    node.tick(2 * NOBODY_LEADS - 0.1)
    assert node.role is Role.PRE_CANDIDATE
    node.receive("n9", Heartbeat(10, -1), 2 * NOBODY_LEADS - 0.1)
    assert node.role is Role.PRE_CANDIDATE


def test_a_member_takes_the_place_of_a_stranger_that_seemed_to_lead() -> None:
    node = core(1, 1)
    node.receive("n9", Heartbeat(10, -1), NOBODY_LEADS)
    node.receive("n9", AppendRequest(10, 1, 1, -1, ()), NOBODY_LEADS)
    assert (node.leader, node.match_index) == ("n9", -1)
    node.receive("n1", Heartbeat(10, -1), NOBODY_LEADS)
    assert (node.leader, node.raft_log.verified_index) == ("n1", -1)
    with pytest.raises(PeerError, match="n1 and n9 both lead term 10"):
        node.receive("n9", Heartbeat(10, -1), NOBODY_LEADS)


def test_a_stranger_whose_log_is_no_longer_gets_no_vote_and_raises_no_term() -> None:
    node = core(1, 1)
    node.receive("n9", VoteRequest(10, 1, 1, pre_vote=False), NOBODY_LEADS)
    assert (node.vote, node.term) == ("", 9)


def test_a_stranger_that_does_not_know_the_log_is_not_believed() -> None:
    node = core(1, 1)
    node.receive("n9", Heartbeat(10, 1, 1, (MemberEvidence("n1", 51, 7),)), NOBODY_LEADS)
    node.receive("n9", AppendRequest(10, 1, 1, 1, ()), NOBODY_LEADS)
    node.receive("n9", Heartbeat(10, 1, 2, (MemberEvidence("n1", 51, 7),)), NOBODY_LEADS)
    assert (node.leader, node.commit_index) == ("n9", -1)
    assert node.known_evidence() == []


@pytest.mark.parametrize(("leader", "answered"), [("n1", 7), ("n9", 0)])
def test_a_stranger_that_leads_gets_no_lease(leader: str, answered: int) -> None:
    """Whoever follows it may vote for a member at any time."""
    node = core(1, 1)
    node.receive(leader, Heartbeat(9, -1, 7), NOBODY_LEADS)
    [sent] = node.take().messages
    assert node.leader == leader
    assert isinstance(sent.message, HeartbeatResponse)
    assert sent.message.round == answered


def test_what_members_hold_is_believed_of_who_knows_the_log() -> None:
    """One lie about it, saved by all, would keep every one of them from a vote for ever."""
    node = core(1, 1)
    lie = (MemberEvidence("n1", 51, 7), MemberEvidence("n5", 55, 7))
    node.receive("n1", Heartbeat(10, 1, 1, lie), 0.0)
    assert node.known_evidence() == []
    entry = next_entry(node.entry_cache, 10, node.entry_cache.end_position, b"x")
    node.receive("n1", AppendRequest(10, 1, 1, 1, (entry,)), 0.0)
    node.receive("n1", Heartbeat(10, 1, 2, lie), 0.0)
    assert node.known_evidence() == [lie[0]]


def test_a_stranger_keeps_no_member_from_an_election() -> None:
    """Whatever it sends to the two that are left, and however often, they elect one of them."""
    cluster = group()
    cluster.crash(leader_of(cluster))
    cluster.run(0.0)
    left = one, other = list(cluster.cores)
    cluster.connect(one, other, up=False)
    until = cluster.now + NOBODY_LEADS
    while cluster.now < until:
        cluster.run(0.01)
    cluster.connect(one, other, up=True)
    for _ in range(600):
        for name in left:
            term = cluster.cores[name].term + 1
            for message in (VoteRequest(term, 1 << 40, 1 << 40, False), Heartbeat(term, -1, 1)):
                says(cluster, "n9", name, message)
        cluster.run(0.01)
    leader = leader_of(cluster)
    cluster.propose(leader, b"x")
    cluster.run(1.0)
    assert all(core.leader == leader for core in cluster.cores.values())
    assert len({core.commit_index for core in cluster.cores.values()}) == 1


def test_a_node_that_joins_follows_whoever_finds_it_first() -> None:
    node = core(term=0, voters=())
    node.receive("n9", Heartbeat(1_000_000, -1), 0.0)
    assert (node.leader, node.term) == ("n9", 1_000_000)


# --- terms


@pytest.mark.parametrize("sender", ["n1", "n9"])
@pytest.mark.parametrize("term", [10 + DISTANCE_MAX, 1 << 62, TERM_MAX])
@pytest.mark.parametrize(
    "message",
    [
        lambda term: Heartbeat(term, -1),
        lambda term: AppendRequest(term, -1, 0, -1, ()),
        lambda term: VoteRequest(term, 100, 100, False),
        lambda term: VoteRequest(term, 100, 100, True),
        lambda term: VoteResponse(term, False, True),
        lambda term: HeartbeatResponse(term, -1, -1),
        lambda term: AppendAccepted(term, -1),
    ],
)
def test_no_term_is_adopted_that_is_far_from_what_is_known(
    sender: str, term: int, message: object
) -> None:
    assert callable(message)
    node = core()
    refused = False
    try:
        node.receive(sender, message(term), NOBODY_LEADS)
    except PeerError as error:
        refused = "too far from term 9" in str(error)
    assert refused or sender == "n9"
    assert node.term == 9
    assert node.take().write is None


def test_a_node_that_was_away_for_millions_of_elections_follows() -> None:
    node = core()
    node.receive("n1", Heartbeat(9 + JUMP_MAX, -1), 0.0)
    assert (node.leader, node.term) == ("n1", 9 + JUMP_MAX)


def test_a_node_that_was_away_for_longer_gets_there_step_by_step() -> None:
    node, now = core(), 0.0
    for _ in range(100):
        now += 0.1
        node.receive("n1", Heartbeat(9 + 2 * JUMP_MAX, -1), now)
    assert (node.leader, node.term) == ("n1", 9 + 2 * JUMP_MAX)


def test_a_member_that_raises_the_term_again_and_again_gets_nowhere() -> None:
    node, now = core(1), 0.0
    for _ in range(10_000):
        now += 0.001
        node.receive("n1", VoteRequest(node.term + DISTANCE_MAX, 9, 9, False), now)
    assert node.term < 10 + JUMP_MAX + 10 * RISE_PER_SECOND
    now += 0.1
    node.receive("n2", VoteRequest(node.term + 1, 100, 9, False), now)
    assert node.vote == "n2"


def test_a_member_whose_term_was_raised_far_is_followed_by_the_others_in_time() -> None:
    """Else it would be out for ever: it follows no earlier term, and its own would be refused."""
    cluster = group()
    leader = leader_of(cluster)
    [node, liar] = [name for name in cluster.names if name != leader]
    for _ in range(30):
        term = cluster.cores[node].term + DISTANCE_MAX
        says(cluster, liar, node, VoteRequest(term, 1 << 40, 1 << 40, False, ordered=True))
        cluster.run(0.1)
    cluster.run(10.0)
    terms = {core.term for core in cluster.cores.values()}
    assert min(terms) > JUMP_MAX
    assert len(terms) == 1
    assert leader_of(cluster)


def test_a_node_that_joins_a_group_of_any_term_follows() -> None:
    node = core(term=0, voters=())
    node.receive("n1", Heartbeat(1 << 62, -1), 0.0)
    assert (node.leader, node.term) == ("n1", 1 << 62)


@pytest.mark.parametrize("term", [1 << 62, TERM_MAX - 1000])
def test_a_group_near_the_largest_term_goes_on(term: int) -> None:
    cluster = group()
    for name in cluster.names:
        cluster.crash(name)
        cluster.disks[name].term = term
    for name in cluster.names:
        cluster.restart(name)
    cluster.run(3.0)
    first = leader_of(cluster)
    cluster.propose(first, b"x")
    cluster.run(1.0)
    cluster.crash(first)
    cluster.run(3.0)
    assert cluster.cores[leader_of(cluster)].term > term + 1
    cluster.restart(first)
    cluster.run(1.0)
    assert cluster.cores[first].role is Role.FOLLOWER


def test_a_node_at_the_largest_term_campaigns_no_more_and_lives() -> None:
    node = core(term=TERM_MAX)
    for second in range(1, 10):
        node.tick(float(second))
    assert (node.role, node.term) == (Role.FOLLOWER, TERM_MAX)


# --- reads


def test_a_read_index_counts_only_from_who_was_asked() -> None:
    cluster = group()
    leader = leader_of(cluster)
    [node, other] = [name for name in cluster.names if name != leader]
    follower = cluster.cores[node]
    follower.read_index(1, cluster.now)
    follower.take()
    for sender, number in (("n9", 1), (other, 1), (leader, 2)):
        follower.receive(sender, ReadResponse(follower.term, number, 0), cluster.now)
        assert follower.take().read_indexes == ()
    follower.receive(leader, ReadResponse(follower.term, 1, 0), cluster.now)
    assert [answer.index for answer in follower.take().read_indexes] == [0]


def test_questions_of_one_peer_do_not_pile_up() -> None:
    cluster = group()
    leader = leader_of(cluster)
    [node, other] = [name for name in cluster.names if name != leader]
    leader_state = cluster.cores[leader]._raft_state.leader_state
    assert leader_state is not None
    for number in range(10_000):
        for sender in (node, other, "n9"):
            message = ReadRequest(cluster.cores[leader].term, number)
            cluster.cores[leader].receive(sender, message, cluster.now)
    waiting = leader_state.reads._rounds.drop()
    assert len(waiting) <= 2 * READS_WAITING_MAX + 1
    assert {asked.asker for asked in waiting} == {node, other}


def test_a_disk_has_a_number_that_disks_have() -> None:
    cluster = group()
    leader = cluster.cores[leader_of(cluster)]
    peer = leader.peers[0]
    for message in (
        HeartbeatResponse(leader.term, 0, 0, 1, 1, 0),
        AppendAccepted(leader.term, 0, -1),
    ):
        with pytest.raises(PeerError, match=f"{peer} says that it stands on disk"):
            leader.receive(peer, message, cluster.now)
