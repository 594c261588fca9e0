"""How far a follower lets itself be told that entries are committed."""

from __future__ import annotations

from random import Random

from dledger.config import RaftConfig
from dledger.raft.configuration import Configuration, Configurations
from dledger.raft.core import Raft
from dledger.raft.entry_cache import EntryCache
from dledger.raft.messages import NOTICE, AppendRequest, Envelope, Heartbeat, HeartbeatResponse
from tests.dledger.raft.written_log import written_log


def follower(*terms: int) -> Raft:
    """A core of term 5 that holds such a log and knows nothing of it to be committed."""
    log = EntryCache()
    for entry in written_log(terms):
        log.append(entry)
    return Raft(
        node="n0",
        configurations=Configurations(Configuration(("n0", "n1", "n2"))),
        log=log,
        segment_size=1 << 20,
        rng=Random(1),
        now=0.0,
        config=RaftConfig(),
        term=5,
    )


def test_an_append_commits_no_further_than_it_reaches() -> None:
    """The entries behind it may be another leader's (bug B6)."""
    node = follower(1, 2, 3, 3)
    held = written_log([1, 2])[1]
    node.receive("n1", AppendRequest(5, 0, 1, 3, (held,)), 0.0)
    assert node.commit_index == 1
    assert node.entry_cache.last_index == 3


def test_a_heartbeat_commits_no_further_than_this_leader_was_found_to_match() -> None:
    node = follower(1, 2, 3, 3)
    node.receive("n1", Heartbeat(5, 3), 0.0)
    assert node.commit_index == -1
    node.receive("n1", AppendRequest(5, 1, 2, -1, ()), 0.0)
    node.receive("n1", Heartbeat(5, 3), 0.0)
    assert node.commit_index == 1


def test_what_one_leader_was_found_to_match_says_nothing_about_the_next() -> None:
    node = follower(1, 2, 3, 3)
    node.receive("n1", AppendRequest(5, 3, 3, -1, ()), 0.0)
    node.receive("n2", Heartbeat(6, 3), 0.0)
    assert node.commit_index == -1


def test_a_committed_index_never_moves_back() -> None:
    node = follower(1, 1, 1)
    node.receive("n1", AppendRequest(5, 2, 1, 2, ()), 0.0)
    node.receive("n1", AppendRequest(5, 0, 1, 0, ()), 0.0)
    node.receive("n1", Heartbeat(5, 0), 0.0)
    assert node.commit_index == 2


def test_a_notice_of_the_leader_commits_and_is_not_answered() -> None:
    node = follower(1, 1, 1)
    node.receive("n1", AppendRequest(5, 2, 1, -1, ()), 0.0)
    node.take()
    node.receive("n1", Heartbeat(5, 1, NOTICE), 0.0)
    assert node.commit_index == 1
    assert node.take().messages == []


def test_a_notice_puts_off_the_next_election() -> None:
    node = follower(1)
    node.receive("n1", Heartbeat(5, -1, 1), 0.0)
    node.receive("n1", Heartbeat(5, -1, NOTICE), 10.0)
    assert node.deadline() > 10.0


def test_a_notice_of_a_deposed_leader_is_answered_with_the_newer_term() -> None:
    node = follower(1)
    node.receive("n1", Heartbeat(4, 0, NOTICE), 0.0)
    assert node.take().messages == [Envelope("n1", HeartbeatResponse(5, -1, -1, NOTICE, 0, 0))]
    assert node.commit_index == -1
