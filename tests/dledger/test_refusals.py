"""What a core refuses: states that cannot be, and messages that no honest peer sends."""

from __future__ import annotations

from random import Random

import pytest

from dledger.config import RaftConfig
from dledger.configuration import Configuration, Configurations
from dledger.errors import InvariantError, NotLeaderError, PeerError
from dledger.log import RaftLog
from dledger.messages import (
    AppendAccepted,
    AppendRequest,
    Envelope,
    Heartbeat,
    HeartbeatResponse,
    VoteRequest,
    VoteResponse,
)
from dledger.raft import Raft
from store.entry import Entry
from tests.dledger.cluster import Cluster, next_entry, written_log


def core(*terms: int, term: int = 9, commit_index: int = -1) -> Raft:
    """One core of three, with such a log, in segments of 200 bytes."""
    log = RaftLog()
    for entry in written_log(terms):
        log.append(entry)
    return Raft(
        node="n0",
        configurations=Configurations(Configuration(("n0", "n1", "n2"))),
        log=log,
        segment_size=200,
        rng=Random(1),
        now=0.0,
        config=RaftConfig(),
        term=term,
        commit_index=commit_index,
    )


def append(*entries: Entry, prev: int = -1, prev_term: int = 0) -> AppendRequest:
    return AppendRequest(9, prev, prev_term, -1, entries)


def test_a_term_older_than_the_log_beside_it_stops_the_node_at_its_start() -> None:
    with pytest.raises(InvariantError, match="its term 1 is below 2 of its log"):
        core(1, 2, term=1)


def test_a_commit_index_behind_the_end_of_the_log_stops_the_node_at_its_start() -> None:
    with pytest.raises(InvariantError, match="entry 2 is committed, but the log ends at 1"):
        core(1, 1, commit_index=2)


def test_a_node_does_not_hear_itself() -> None:
    with pytest.raises(PeerError, match="n0 is this node itself"):
        core().receive("n0", Heartbeat(9, -1), 0.0)


def test_entries_out_of_place_are_refused() -> None:
    entries = written_log([1, 1, 1])
    with pytest.raises(PeerError, match="n1 sent entry 2 out of place"):
        core().receive("n1", append(entries[0], entries[2]), 0.0)


def test_an_entry_of_a_later_term_than_its_sender_is_refused() -> None:
    with pytest.raises(PeerError, match="n1 sent entry 0 out of place"):
        core().receive("n1", append(*written_log([10])), 0.0)


def test_an_entry_that_no_segment_can_hold_is_refused() -> None:
    large = next_entry(RaftLog(), 1, 0, bytes(500))
    with pytest.raises(PeerError, match="an entry of 548 bytes exceeds the 192"):
        core().receive("n1", append(large), 0.0)


def test_an_entry_at_another_position_is_refused() -> None:
    elsewhere = next_entry(RaftLog(), 1, 200, b"")
    with pytest.raises(PeerError, match="entry 0 of n1 stands at 200, ours at 0"):
        core().receive("n1", append(elsewhere), 0.0)


def test_two_leaders_of_one_term_stop_the_node() -> None:
    node = core()
    node.receive("n1", Heartbeat(9, -1), 0.0)
    with pytest.raises(InvariantError, match="n1 and n2 both lead term 9"):
        node.receive("n2", Heartbeat(9, -1), 0.0)


def test_a_leader_with_another_term_at_a_committed_index_stops_the_node() -> None:
    node = core(1, 1, commit_index=1)
    with pytest.raises(InvariantError, match="committed entry 1 has term 1, leader n1 has term 2"):
        node.receive("n1", append(prev=1, prev_term=2), 0.0)


@pytest.mark.parametrize("answer", [AppendAccepted(1, 5), HeartbeatResponse(1, 5, 5)])
def test_entries_that_do_not_exist_cannot_be_confirmed(
    answer: AppendAccepted | HeartbeatResponse,
) -> None:
    cluster = Cluster(("n0", "n1", "n2"))
    cluster.tick("n0")
    cluster.deliver_all()
    with pytest.raises(PeerError, match="n1 confirms entry 5"):
        cluster.cores["n0"].receive("n1", answer, cluster.now)


def test_only_a_leader_takes_proposals() -> None:
    with pytest.raises(NotLeaderError, match="not the leader; the leader is not known yet"):
        core().check_may_propose()


def test_a_vote_for_an_older_term_is_refused_with_the_newer() -> None:
    node = core()
    node.receive("n1", VoteRequest(8, 100, 8, False), 0.0)
    assert node.take().messages == [Envelope("n1", VoteResponse(9, False, False))]
