"""Who is empty, and may have been wiped: with whom it begins a log, and for whom it votes."""

from __future__ import annotations

from random import Random

import pytest

from dledger.config import RaftConfig
from dledger.raft.configuration import Configuration, Configurations
from dledger.raft.core import Raft
from dledger.raft.entry_cache import EntryCache
from dledger.raft.messages import AppendAccepted, Heartbeat, VoteRequest, VoteResponse
from dledger.raft.raft_state import Role
from dledger.raft.replication_evidence import MemberEvidence
from tests.dledger.raft.written_log import written_log

THREE = ("n0", "n1", "n2")
FIVE = (*THREE, "n3", "n4")
DISKS = {name: 50 + place for place, name in enumerate(FIVE)}
ANOTHER_DISK = 77


def core(
    voters: tuple[str, ...] = THREE,
    *,
    entries: int = 0,
    sync: bool = True,
    known: Raft | None = None,
) -> Raft:
    """n0, without entries; one that starts anew knows what ``known`` has saved."""
    log = EntryCache()
    for entry in written_log([1] * entries):
        log.append(entry)
    return Raft(
        node="n0",
        configurations=Configurations(Configuration(voters)),
        log=log,
        segment_size=1 << 20,
        rng=Random(1),
        now=0.0,
        config=RaftConfig(),
        term=5,
        incarnation=DISKS["n0"],
        sync_flush=sync,
        evidence=() if known is None else known.known_evidence(),
    )


def grants(node: Raft, sender: str, disk: int, last_index: int = -1) -> bool:
    """Whether the node would vote for that candidate."""
    last_term = 0 if last_index < 0 else 1
    request = VoteRequest(node.term + 1, last_index, last_term, True, False, disk)
    node.take()
    node.receive(sender, request, 10.0)
    [answer] = [each.message for each in node.take().messages]
    assert isinstance(answer, VoteResponse)
    return answer.granted


def answers(node: Raft, sender: str, disk: int, last_index: int = -1) -> None:
    """It says that to a question for its vote of some time ago."""
    node.receive(sender, VoteResponse(node.term, False, True, disk, last_index), 10.0)


@pytest.mark.parametrize("sync", [True, False], ids=["sync", "async"])
def test_who_is_empty_begins_no_log_with_a_voter_that_was_wiped(sync: bool) -> None:
    node = core(sync=sync)
    assert grants(node, "n1", DISKS["n1"])
    assert not grants(node, "n1", ANOTHER_DISK)
    assert grants(node, "n2", DISKS["n2"])


@pytest.mark.parametrize("sync", [True, False], ids=["sync", "async"])
def test_the_disk_on_which_a_voter_was_met_is_known_after_a_restart(sync: bool) -> None:
    node = core(sync=sync)
    answers(node, "n1", DISKS["n1"])
    node = core(sync=sync, known=node)
    assert not grants(node, "n1", ANOTHER_DISK)


def test_the_vote_of_a_wiped_voter_begins_no_log() -> None:
    for disk, role in ((DISKS["n1"], Role.CANDIDATE), (ANOTHER_DISK, Role.PRE_CANDIDATE)):
        node = core()
        answers(node, "n1", DISKS["n1"])
        for peer in ("n1", "n2"):
            node.peer_connected(peer, 0.0)
        node.tick(5.0)
        node.receive("n1", VoteResponse(node.term + 1, True, True, disk, -1), 5.0)
        assert node.role is role


def test_who_was_told_that_something_is_committed_begins_no_log() -> None:
    """Not even with voters of which it never heard: one of them was wiped."""
    node = core(FIVE)
    node.receive("n1", Heartbeat(6, -1, 1, (MemberEvidence("n1", DISKS["n1"], 3),)), 0.0)
    assert not grants(node, "n2", ANOTHER_DISK)
    assert not grants(core(FIVE, known=node), "n3", DISKS["n3"])


def test_who_is_empty_votes_for_nobody_who_is_not() -> None:
    """It may have been wiped itself, and the candidate lack what it had confirmed."""
    node = core()
    assert not grants(node, "n1", DISKS["n1"], 3)
    answers(node, "n2", DISKS["n2"], 4)
    assert not grants(node, "n1", DISKS["n1"], 3)


@pytest.mark.parametrize("last_index", [-1, 2], ids=["empty", "refilled in part"])
def test_who_met_a_wiped_voter_votes_for_who_holds_the_log(last_index: int) -> None:
    """One is wiped at a time: this node was not."""
    node = core()
    answers(node, "n2", DISKS["n2"])
    answers(node, "n2", ANOTHER_DISK, last_index)
    assert grants(node, "n1", DISKS["n1"], 3)


def test_who_met_a_voter_that_was_wiped_does_not_vote_for_it() -> None:
    """It may have been refilled in part, or hold the beginning of a log whose end is lost."""
    node = core()
    answers(node, "n2", DISKS["n2"])
    assert not grants(node, "n2", ANOTHER_DISK, 0)
    answers(node, "n1", DISKS["n1"], 3)
    assert not grants(node, "n2", ANOTHER_DISK, 0)
    assert grants(node, "n1", DISKS["n1"], 3)


def test_where_all_others_are_empty_the_one_that_is_not_is_voted_for() -> None:
    """No more is left of the log than it has."""
    node = core()
    answers(node, "n2", DISKS["n2"])
    assert grants(node, "n1", DISKS["n1"], 3)


def test_two_voters_begin_a_log_though_one_was_wiped() -> None:
    """What it held is committed only where the other one holds it, and that one is empty."""
    node = core(("n0", "n1"))
    assert grants(node, "n1", DISKS["n1"])
    assert grants(node, "n1", ANOTHER_DISK)


def lost_its_end() -> Raft:
    """n0, whose log lost its end: before, it stood on another disk
    (``store/recovery/lost_suffix.py``).
    """
    node = core(entries=2)
    node._evidence.learn([MemberEvidence("n0", ANOTHER_DISK, -1)])
    for peer in ("n1", "n2"):
        node.peer_connected(peer, 0.0)
    return node


def test_who_lost_the_end_of_its_log_elects_nobody_though_the_log_names_no_disk() -> None:
    """What it had confirmed may be on one other disk alone."""
    node = lost_its_end()
    assert not grants(node, "n1", DISKS["n1"], 5)
    node.take()
    node.tick(20.0)
    assert (node.take().messages, node.role, node.counts) == ([], Role.FOLLOWER, False)


@pytest.mark.parametrize("told", ["by a heartbeat", "by the log"])
def test_it_does_again_once_a_leader_has_counted_the_disk_that_it_is_on(told: str) -> None:
    node = lost_its_end()
    if told == "by the log":
        noted = Configuration(THREE, incarnations={"n0": DISKS["n0"]})
        node._raft_log.configurations.append(1, noted)
    else:
        node._evidence.learn([MemberEvidence("n0", DISKS["n0"], 1)])
    assert node.counts
    assert grants(node, "n1", DISKS["n1"], 5)


def met_the_first_disk_of_n2() -> Raft:
    """n0, with entries that name no disks, which was empty when it met n2."""
    node = core(entries=2)
    node._evidence.learn([MemberEvidence("n2", DISKS["n2"], -1)])
    for peer in ("n1", "n2"):
        node.peer_connected(peer, 0.0)
    node.take()
    return node


def asks_for_votes(node: Raft, voter: str, disk: int) -> None:
    """n0 campaigns as far as the answers of that voter take it."""
    node.tick(20.0)
    node.receive(voter, VoteResponse(node.term + 1, True, True, disk, 1), 20.0)
    write = node.take().write
    if write is not None:
        node.written(write.id, 20.0)
        node.receive(voter, VoteResponse(node.term, True, False, disk, 1), 20.0)


def test_who_holds_entries_that_name_no_disks_elects_no_wiped_voter() -> None:
    """That one may hold a part again of what it had confirmed."""
    node = met_the_first_disk_of_n2()
    assert not grants(node, "n2", ANOTHER_DISK, 1)
    assert grants(node, "n2", DISKS["n2"], 1)


def test_who_holds_entries_that_name_no_disks_is_not_elected_by_a_wiped_voter() -> None:
    for disk, role in ((ANOTHER_DISK, Role.PRE_CANDIDATE), (DISKS["n2"], Role.LEADER)):
        node = met_the_first_disk_of_n2()
        asks_for_votes(node, "n2", disk)
        assert node.role is role


def test_a_leader_whose_log_names_no_disks_counts_a_wiped_voter_once_it_holds_everything() -> None:
    """Until then nobody hears from the leader that this is the disk of that voter."""
    node = met_the_first_disk_of_n2()
    asks_for_votes(node, "n1", DISKS["n1"])
    assert node.role is Role.LEADER
    write = node.take().write
    assert write is not None
    node.written(write.id, 20.0)
    node.receive("n2", AppendAccepted(node.term, 1, ANOTHER_DISK), 20.0)
    assert node.commit_index == -1
    node.receive("n1", AppendAccepted(node.term, 2, DISKS["n1"]), 20.0)
    noted = {"n0": DISKS["n0"], "n1": DISKS["n1"]}
    assert (node.commit_index, node.configuration.incarnations) == (2, noted)
    assert MemberEvidence("n2", DISKS["n2"], -1) in node.known_evidence()
    write = node.take().write
    assert write is not None
    node.written(write.id, 20.0)
    node.receive("n1", AppendAccepted(node.term, 3, DISKS["n1"]), 20.0)
    node.receive("n2", AppendAccepted(node.term, 3, ANOTHER_DISK), 20.0)
    node.tick(20.2)
    assert node.configuration.incarnations == {**noted, "n2": ANOTHER_DISK}


def test_who_holds_entries_notes_no_disk_but_by_what_leaders_say() -> None:
    node = core(entries=2)
    grants(node, "n1", DISKS["n1"])
    assert node.known_evidence() == []


def test_a_stranger_is_no_voter_that_was_met() -> None:
    node = core()
    grants(node, "n9", ANOTHER_DISK)
    assert node.known_evidence() == []
