"""Takes out each defence of ``dledger/`` that no simulated fault needs.

These defences are against messages of a stranger or of a lying member, and for what real processes
do. ``test_without.py`` runs the test that must fail without the defence. ``docs/defences.md`` has
the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dledger.node.linearizable_reads
import dledger.raft.health
from dledger.node.disk_monitor import DiskMonitor
from dledger.node.log_divergence import LogDivergence
from dledger.node.snapshot_receiver import SnapshotReceiver
from dledger.node.unhealthy_leader import UnhealthyLeader
from dledger.raft.configuration import NO_INCARNATION, Configuration
from dledger.raft.configuration_change import ConfigurationChanger
from dledger.raft.core import Raft
from dledger.raft.election import Elections
from dledger.raft.follower import Follower
from dledger.raft.health import MemberHealth
from dledger.raft.leader import LeaderState
from dledger.raft.leadership_transfer import LeadershipTransfer
from dledger.raft.messages import AppendRequest, TimeoutNow, VoteRequest
from dledger.raft.quorum_tracker import QuorumTracker
from dledger.raft.raft_log import RaftLog
from dledger.raft.raft_state import RaftState
from dledger.raft.read_index import LeaderReads, ReadAsked, ReadRounds
from dledger.raft.replication_evidence import MemberEvidence
from dledger.raft.term_bound import TermBound
from dledger.raft.view import RaftView
from simulator.bugs.planted_bug import Patch
from store.log.entry import Entry

# --- strangers


def every_peer_taken_for_a_member(patch: Patch) -> None:
    patch.set(RaftState, "knows", lambda _raft_state, _node: True)


def stranger_heard_at_any_time(patch: Patch) -> None:
    patch.set(RaftState, "accepts_strangers", lambda _raft_state, _now: True)


def stranger_heard_again_and_again(patch: Patch) -> None:
    patch.set(RaftState, "stranger_heard", lambda _raft_state, _now: None)


def stranger_breaks_off_an_election(patch: Patch) -> None:
    hears = RaftState.accepts_leader

    def accepts_leader(raft_state: RaftState, sender: str, term: int, now: float) -> bool:
        voted = term == raft_state.term and sender in (raft_state.leader, raft_state.vote)
        return voted or hears(raft_state, sender, term, now)

    patch.set(RaftState, "accepts_leader", accepts_leader)


def stranger_asks_for_votes_like_a_member(patch: Patch) -> None:
    asked = Elections.vote_requested

    def as_a_member(elections: Elections, sender: str, request: VoteRequest, now: float) -> None:
        vars(elections._raft_state)["knows"] = lambda _node: True
        try:
            asked(elections, sender, request, now)
        finally:
            del vars(elections._raft_state)["knows"]

    patch.set(Elections, "vote_requested", as_a_member)


def stranger_believed_of_what_is_committed(patch: Patch) -> None:
    patch.set(RaftLog, "trusts_leader", lambda _raft_log, _leader: True)


def anybody_believed_of_what_disks_hold(patch: Patch) -> None:
    begin = RaftLog.__init__

    class Proven(RaftLog):
        proven = property(lambda _raft_log: True, lambda _raft_log, _value: None)

    def made(local: RaftLog, **parts: Any) -> None:
        local.__class__ = Proven
        begin(local, **parts)

    patch.set(RaftLog, "__init__", made)


def disks_of_nobody_remembered(patch: Patch) -> None:
    def all_of_them(_follower: Follower, held: tuple[MemberEvidence, ...]) -> list[MemberEvidence]:
        return list(held)

    patch.set(Follower, "_plausible", all_of_them)


def everybody_is_served(patch: Patch) -> None:
    patch.set(RaftView, "serves", lambda _core, _node: True)


def refilled_from_whoever_leads(patch: Patch) -> None:
    patch.set(SnapshotReceiver, "_trusted", lambda _catch_up, leader: leader)


# --- terms, and messages that cannot be right


def any_term_is_near(patch: Patch) -> None:
    patch.set(TermBound, "check", lambda _terms, _sender, _own, _told: None)


def terms_approached_at_once(patch: Patch) -> None:
    patch.set(TermBound, "jump", lambda _terms, _own, _now: 1 << 62)


def second_leader_of_a_term_followed(patch: Patch) -> None:
    patch.set(RaftState, "accepts_leader", lambda _raft_state, _sender, _term, _now: True)


def what_a_stranger_sent_counts_for_a_member(patch: Patch) -> None:
    patch.set(RaftLog, "reset_verified", lambda _raft_log: None)


def entries_taken_from_anywhere(patch: Patch) -> None:
    def unchecked(local: RaftLog, _sender: str, request: AppendRequest) -> list[Entry]:
        return [each for each in request.entries if each.index > local.entry_cache.last_index]

    patch.set(RaftLog, "_checked", unchecked)


def committed_entries_not_compared(patch: Patch) -> None:
    def silent(_raft_log: RaftLog, _sender: str, _index: int, _ours: int, _theirs: int) -> None:
        """As if they were equal."""

    patch.set(RaftLog, "_check_committed", silent)


def what_cannot_be_confirmed_counts(patch: Patch) -> None:
    heard = LeaderState._heard

    def credulous(
        leader_state: LeaderState, sender: str, incarnation: int, match_index: int
    ) -> Any:
        return heard(
            leader_state,
            sender,
            incarnation,
            min(match_index, leader_state._raft_log.entry_cache.last_index),
        )

    patch.set(LeaderState, "_heard", credulous)


def late_order_to_campaign_obeyed(patch: Patch) -> None:
    receive = Raft.receive

    def obedient(core: Raft, sender: str, message: Any, now: float) -> None:
        if isinstance(message, TimeoutNow):
            core._elections.campaign(now, pre_vote=False, ordered=True)
        else:
            receive(core, sender, message, now)

    patch.set(Raft, "receive", obedient)


# --- elections, members, transfers


def votes_of_any_term_counted(patch: Patch) -> None:
    answered = Elections.vote_answered

    def careless(elections: Elections, sender: str, answer: Any, now: float) -> None:
        if answer.granted and not answer.pre_vote:
            object.__setattr__(answer, "term", elections._raft_state.term)
        answered(elections, sender, answer, now)

    patch.set(Elections, "vote_answered", careless)


def whoever_is_no_voter_by_the_newest_entry_never_leads(patch: Patch) -> None:
    def strict(elections: Elections) -> bool:
        return elections._configurations.current.votes(elections._raft_state.node)

    patch.set(Elections, "may_campaign", property(strict))


def stuck_change_never_called_off(patch: Patch) -> None:
    patch.set(Configuration, "cancelled", lambda found: found)


def members_changed_whoever_is_up(patch: Patch) -> None:
    patch.set(QuorumTracker, "keeps_up", lambda _quorum_tracker, _voter: True)


def damaged_members_relied_on(patch: Patch) -> None:
    patch.set(QuorumTracker, "is_intact", lambda _quorum_tracker, _member: True)


def new_disk_counts_at_once(patch: Patch) -> None:
    def noted(
        changes: ConfigurationChanger, found: Configuration, peers: Sequence[str], _now: float
    ) -> dict[str, int]:
        told = {changes._node: changes._incarnation}
        for peer in peers:
            progress = changes._replicator.peers[peer]
            if progress.incarnation:
                told[peer] = progress.incarnation
        return {
            peer: number
            for peer, number in told.items()
            if found.incarnations.get(peer, NO_INCARNATION) != number
        }

    patch.set(ConfigurationChanger, "_incarnations_to_note", noted)


def those_who_leave_are_not_told(patch: Patch) -> None:
    def at_once(changes: ConfigurationChanger, members: Sequence[str], now: float) -> None:
        changes._replicator.set_peers(members, changes._connected, now)

    patch.set(ConfigurationChanger, "_part", at_once)


def handed_over_before_all_is_there(patch: Patch) -> None:
    def at_once(leadership_transfer: LeadershipTransfer) -> None:
        if leadership_transfer.target is not None and not leadership_transfer._sent:
            leadership_transfer._sent = True
            leadership_transfer._ready_builder.send(
                leadership_transfer.target, TimeoutNow(leadership_transfer._term)
            )

    patch.set(LeadershipTransfer, "go_on", at_once)


def proposals_taken_during_a_handover(patch: Patch) -> None:
    check = LeaderState.check_may_propose

    def generous(leader_state: LeaderState) -> None:
        target, leader_state.leadership_transfer.target = (
            leader_state.leadership_transfer.target,
            None,
        )
        try:
            check(leader_state)
        finally:
            leader_state.leadership_transfer.target = target

    patch.set(LeaderState, "check_may_propose", generous)


def check_quorum_put_off_by_each_late_tick(patch: Patch) -> None:
    put_off = LeaderState._put_off_check_if_late

    def always(leader_state: LeaderState, now: float) -> None:
        leader_state._check_put_off_at = 0.0
        put_off(leader_state, now)

    patch.set(LeaderState, "_put_off_check_if_late", always)


def late_read_joins_a_round_under_way(patch: Patch) -> None:
    add = ReadRounds.add

    def joining(rounds: ReadRounds, asked: ReadAsked) -> bool:
        if rounds._under_way:
            rounds._under_way[-1][1].append(asked)
            return False
        return add(rounds, asked)

    patch.set(ReadRounds, "add", joining)


def lease_from_the_answer_on(patch: Patch) -> None:
    serve = LeaderReads.serve

    def late(reads: LeaderReads, now: float) -> None:
        for number in reads._round_sent_at:
            reads._round_sent_at[number] = now
        serve(reads, now)

    patch.set(LeaderReads, "serve", late)


def lease_kept_after_an_order(patch: Patch) -> None:
    ask = LeaderReads.ask

    def kept(reads: LeaderReads, asker: str, number: int, now: float) -> None:
        ordered, reads._handover.ordered = reads._handover.ordered, False
        try:
            ask(reads, asker, number, now)
        finally:
            reads._handover.ordered = ordered

    patch.set(LeaderReads, "ask", kept)


def voter_campaigns_within_a_lease(patch: Patch) -> None:
    def hurry(raft_state: RaftState, now: float) -> None:
        soon = now + raft_state._draw(raft_state._config.lost_leader_seconds)
        raft_state.election_at = min(raft_state.election_at, soon)

    patch.set(RaftState, "hasten_election", hurry)


def numbers_of_questions_used_again(patch: Patch) -> None:
    patch.set(dledger.node.linearizable_reads, "NUMBERS_PER_SECOND", 0)


# --- nodes


def stalled_disk_not_noticed(patch: Patch) -> None:
    patch.set(DiskMonitor, "look_for_stall", lambda _disk: None)


def unhealthy_leader_stays(patch: Patch) -> None:
    patch.set(UnhealthyLeader, "look", lambda _leader, _report: None)


def damaged_member_campaigns(patch: Patch) -> None:
    patch.set(MemberHealth, "campaigns", lambda health, _peers: health.own.holds_confirmed)


def member_without_room_is_as_quick_as_others(patch: Patch) -> None:
    patch.set(dledger.raft.health, "UNHEALTHY_DELAY_FACTOR", 1.0)


def divergence_not_noticed(patch: Patch) -> None:
    patch.set(LogDivergence, "refused", lambda _divergence, _sender, _request: None)


def divergence_believed_of_the_leader_alone(patch: Patch) -> None:
    def at_once(divergence: LogDivergence, sender: str, request: AppendRequest) -> None:
        if request.entries and divergence._differs(sender, request.entries[0]):
            divergence.found = True
            divergence._refill(sender)

    patch.set(LogDivergence, "refused", at_once)
