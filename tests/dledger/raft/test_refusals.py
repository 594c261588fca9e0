"""What a core refuses: states that cannot be, and messages that no honest peer sends."""

from __future__ import annotations

from random import Random

import pytest

from dledger.config import RaftConfig
from dledger.errors import InvariantError, NotLeaderError, PeerError
from dledger.raft.configuration import Configuration, Configurations
from dledger.raft.core import Raft
from dledger.raft.entry_cache import EntryCache
from dledger.raft.messages import (
    AppendAccepted,
    AppendRequest,
    Envelope,
    Heartbeat,
    HeartbeatResponse,
    VoteRequest,
    VoteResponse,
)
from store.log.entry import Entry, EntryKind, build_entry
from tests.dledger.raft.core_cluster import Cluster
from tests.dledger.raft.written_log import next_entry, written_log


def core(*terms: int, term: int = 9, commit_index: int = -1, segment_size: int = 200) -> Raft:
    """One core of three, with such a log."""
    log = EntryCache()
    for entry in written_log(terms):
        log.append(entry)
    return Raft(
        node="n0",
        configurations=Configurations(Configuration(("n0", "n1", "n2"))),
        log=log,
        segment_size=segment_size,
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
    large = next_entry(EntryCache(), 1, 0, bytes(500))
    with pytest.raises(PeerError, match="an entry of 548 bytes exceeds the 192"):
        core().receive("n1", append(large), 0.0)


def test_an_entry_at_another_position_is_refused() -> None:
    elsewhere = next_entry(EntryCache(), 1, 200, b"")
    with pytest.raises(PeerError, match="entry 0 of n1 stands at 200, ours at 0"):
        core().receive("n1", append(elsewhere), 0.0)


def test_the_second_leader_of_a_term_is_refused_and_the_first_followed() -> None:
    node = core()
    node.receive("n1", Heartbeat(9, -1), 0.0)
    with pytest.raises(PeerError, match="n1 and n2 both lead term 9"):
        node.receive("n2", Heartbeat(9, -1), 0.0)
    with pytest.raises(PeerError, match="n1 and n2 both lead term 9"):
        node.receive("n2", append(*written_log([9])), 0.0)
    assert (node.leader, node.term, node.entry_cache.last_index) == ("n1", 9, -1)


def test_a_leader_with_another_term_at_a_committed_index_is_refused() -> None:
    node = core(1, 1, commit_index=1)
    with pytest.raises(PeerError, match="committed entry 1 has term 1, leader n1 has term 2"):
        node.receive("n1", append(prev=1, prev_term=2), 0.0)
    with pytest.raises(PeerError, match="committed entry 1 has term 1, leader n1 has term 9"):
        node.receive("n1", append(*written_log([1, 9])), 0.0)
    assert node.entry_cache.term_at(1) == 1


def test_entries_that_do_not_continue_what_stays_cut_nothing() -> None:
    """What is behind the commit index may be what a majority counts on."""
    node = core(1, 1, 1, commit_index=0)
    node.take()
    forged = build_entry(EntryKind.DATA, 1, 9, 53, 12345, (b"x",))
    with pytest.raises(PeerError, match="entry 1 of n1 does not continue our log"):
        node.receive("n1", append(forged, prev=0, prev_term=1), 0.0)
    assert node.entry_cache.last_index == 2


def test_an_entry_of_an_earlier_term_than_the_one_before_it_is_refused() -> None:
    node = core(2)
    entries = written_log([2, 2])
    older = next_entry(node.entry_cache, 1, entries[0].end, b"x")
    with pytest.raises(PeerError, match="entry 1 of n1 has term 1, after term 2"):
        node.receive("n1", append(older, prev=0, prev_term=2), 0.0)
    first = next_entry(EntryCache(), 3, 0, b"0/3")
    log = EntryCache()
    log.append(first)
    second = next_entry(log, 2, first.end, b"1/2")
    with pytest.raises(PeerError, match="entry 1 of n1 has term 2, after term 3"):
        core().receive("n1", append(first, second), 0.0)


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        Configuration(("n0", "n" * 1000)).pack(),
        Configuration(("n0", "a\nb")).pack(),
        Configuration(tuple(f"n{number}" for number in range(1000))).pack(),
        Configuration(("n0",), incarnations={"n0": -5}).pack(),
    ],
    ids=["nested", "long name", "two lines", "many members", "incarnation"],
)
def test_a_configuration_that_no_leader_makes_is_refused(body: bytes) -> None:
    entry = build_entry(EntryKind.CONFIGURATION, 0, 9, 0, 0, (body,))
    node = core(segment_size=1 << 20)
    with pytest.raises(PeerError, match="entry 0 of n1 does not continue our log") as refused:
        node.receive("n1", append(entry), 0.0)
    assert len(str(refused.value)) < 400
    assert "\n" not in str(refused.value)


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
