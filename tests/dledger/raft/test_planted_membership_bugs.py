"""Scenarios and schedules of changing members are tested by bugs: one defence is taken out, and
the story must be another, or a rule be seen broken."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from dledger.raft.bootstrap import Bootstrap
from dledger.raft.configuration import Configuration, Configurations
from dledger.raft.configuration_change import ConfigurationChanger
from dledger.raft.election import Elections
from dledger.raft.leadership_transfer import LeadershipTransfer
from dledger.raft.messages import VoteRequest
from dledger.raft.raft_state import RaftState
from dledger.raft.replication_evidence import ReplicationEvidence
from simulator.bugs.planted_bug import Patch
from tests.dledger.raft.random_schedule import BrokenRuleError, Schedule
from tests.dledger.raft.scenario import SCENARIOS, play

THREE = ("n0", "n1", "n2")
SPARE = ("n3", "n4")


def members_alone_vote_and_are_voted_for(patch: Patch) -> None:
    """A8: a new voter that does not know yet that it is one refuses its vote."""
    may_vote = Elections._may_vote

    def strict(elections: Elections, sender: str, request: VoteRequest) -> bool:
        found, node = elections._configurations.current, elections._raft_state.node
        known = found.votes(node) and found.votes(sender)
        return known and may_vote(elections, sender, request)

    patch.set(Elections, "_may_vote", strict)


def removed_leader_goes_on(patch: Patch) -> None:
    """A8: a leader that is removed does not step down."""
    patch.set(RaftState, "end_if_over", lambda _raft_state, _now: None)


def transfer_without_an_end(patch: Patch) -> None:
    """A11: a leader whose target never takes over refuses proposals for ever."""
    begin = LeadershipTransfer.begin

    def forever(leadership_transfer: LeadershipTransfer, target: str, now: float) -> None:
        begin(leadership_transfer, target, now)
        leadership_transfer.ends_at = float("inf")

    patch.set(LeadershipTransfer, "begin", forever)


def changes_overlap(patch: Patch) -> None:
    """B8: a change begins before the last one, and an entry of the own term, are committed."""
    patch.set(
        ConfigurationChanger, "changeable", lambda changes: changes._quorum_tracker.configuration
    )


def configuration_forgotten_at_a_restart(patch: Patch) -> None:
    """B9: a node starts with the voters that the group began with."""

    def forgetful(
        cls: type[Configurations], voters: object, _index: int, _packed: bytes, _entries: object
    ) -> Configurations:
        assert isinstance(voters, tuple)
        return cls(Configuration(voters))

    patch.set(Configurations, "recovered", classmethod(forgetful))


def configuration_of_a_cut_entry_kept(patch: Patch) -> None:
    """B9: the membership of an entry that another leader overwrote stays in effect."""
    patch.set(Configurations, "truncate", lambda _configurations, _first_index: None)


def every_disk_counts(patch: Patch) -> None:
    """C11: a wiped node votes as if it still held what it lost."""
    patch.set(ReplicationEvidence, "counts", lambda *_who: True)
    patch.set(Elections, "_may_vote", lambda _elections, _sender, _request: True)


def what_members_held_is_forgotten(patch: Patch) -> None:
    """C11: an old copy of a disk is known only to the leader that heard its confirmations."""
    patch.set(ReplicationEvidence, "learn", lambda _evidence, _told: None)


def wiped_voters_are_taken_for_new_ones(patch: Patch) -> None:
    """C11: where the log names no disk, every disk counts."""
    patch.set(ReplicationEvidence, "replaced", lambda _evidence, _node, _incarnation: False)


def no_empty_node_votes_for_who_is_not(patch: Patch) -> None:
    """C11: an empty node waits for a leader, though it knows that it was not wiped itself."""
    patch.set(Bootstrap, "votes_for", lambda _bootstrap, _candidate, last_index: last_index < 0)


class Heedless(ReplicationEvidence):
    """Knows what another one knows, and makes nothing of it."""

    def __init__(self, evidence: ReplicationEvidence) -> None:
        super().__init__(kept=evidence.kept)
        self._known = evidence._known

    def copy(self) -> ReplicationEvidence:
        return self

    def lacks(self, node: str, incarnation: int, last_index: int) -> bool:
        return False


def what_members_held_is_not_heeded(patch: Patch) -> None:
    """C11: what is known of the members' disks is learned, and changes nothing."""
    for part in (RaftState, Elections):
        begin: Callable[..., None] = part.__init__

        def heedless(
            made: object,
            *,
            evidence: ReplicationEvidence,
            begin: Callable[..., None] = begin,
            **others: object,
        ) -> None:
            begin(made, evidence=Heedless(evidence), **others)

        patch.set(part, "__init__", heedless)


BUGS: dict[Callable[[Patch], None], str] = {
    members_alone_vote_and_are_voted_for: "a8_new_voter_that_does_not_know_yet_votes",
    removed_leader_goes_on: "a8_removed_leader_steps_down",
    transfer_without_an_end: "a11_transfer_that_comes_to_nothing",
    changes_overlap: "b8_no_change_before_an_entry_of_the_own_term",
    configuration_forgotten_at_a_restart: "b9_joint_configuration_survives_a_restart",
    configuration_of_a_cut_entry_kept: "b9_configuration_of_a_cut_entry_is_forgotten",
    what_members_held_is_forgotten: "c11_old_copy_of_a_disk_is_recognised_by_the_next_leader",
    every_disk_counts: "c11_wiped_voter_counts_for_nothing_until_refilled",
    wiped_voters_are_taken_for_new_ones: "c11_wiped_voter_begins_no_log_with_an_empty_one",
    no_empty_node_votes_for_who_is_not: "c11_wiped_voter_begins_no_log_with_an_empty_one",
}
IDS = [bug.__name__ for bug in BUGS]


@pytest.mark.parametrize(("bug", "name"), BUGS.items(), ids=IDS)
def test_a_planted_bug_changes_the_scenario_that_is_told_of_it(
    bug: Callable[[Patch], None], name: str
) -> None:
    told = (SCENARIOS / f"{name}.txt").read_text()
    patch = Patch()
    bug(patch)
    try:
        assert play(told) != told
    finally:
        patch.undo()
    assert play(told) == told


def test_a_wiped_voter_that_votes_elects_a_leader_without_what_was_acknowledged() -> None:
    """What the defence is for: the acknowledged x is gone."""
    told = (SCENARIOS / "c11_wiped_voter_counts_for_nothing_until_refilled.txt").read_text()
    patch = Patch()
    every_disk_counts(patch)
    try:
        assert "n0 LEADS" in play(told)
    finally:
        patch.undo()


def test_an_old_copy_that_nobody_recognises_elects_a_leader_without_what_was_acknowledged() -> None:
    told = (SCENARIOS / "c11_old_copy_of_a_disk_elects_nobody.txt").read_text()
    patch = Patch()
    what_members_held_is_forgotten(patch)
    try:
        assert "n2 LEADS" in play(told)
    finally:
        patch.undo()


@pytest.mark.minutes
@pytest.mark.parametrize(
    ("bug", "seeds"),
    [
        (configuration_forgotten_at_a_restart, 20),
        (configuration_of_a_cut_entry_kept, 160),
        (what_members_held_is_not_heeded, 120),
    ],
)
def test_a_planted_bug_breaks_a_rule_of_a_schedule(
    bug: Callable[[Patch], None], seeds: int
) -> None:
    copies = bug is what_members_held_is_not_heeded
    patch = Patch()
    bug(patch)
    try:
        for seed in range(seeds):
            try:
                spare = () if copies else SPARE
                Schedule(THREE, Random(seed).randrange, spare=spare, copies=copies).run(500)
            except BrokenRuleError:
                return
    finally:
        patch.undo()
    pytest.fail(f"no rule was seen broken in {seeds} seeds")
