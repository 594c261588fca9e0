"""Planted bugs B: log matching and commit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dledger.raft.entry_cache import EntryCache
from dledger.raft.leader import LeaderState
from dledger.raft.messages import AppendRequest, Heartbeat
from dledger.raft.quorum_tracker import QuorumTracker
from dledger.raft.raft_log import RaftLog
from dledger.raft.raft_state import RaftState
from dledger.raft.ready import ReadyBuilder
from dledger.raft.replication import Replicator
from dledger.raft.replication_evidence import MemberEvidence
from simulator.bugs.planted_bug import BugsOf, Original, Patch
from simulator.engine.peer_network import Network
from store.log.entry import Entry

WRONG = "commits another entry | committed entry"
bug = BugsOf()


@bug("B1", "by counting", 40)
def commit_of_an_older_term_by_counting(patch: Patch) -> None:
    """Figure 8 of the Raft paper: copies of an entry of an earlier term are counted."""

    @patch.instead(LeaderState, "advance_commit")
    def advance(leader_state: LeaderState, now: float) -> None:
        index = leader_state.quorum_tracker.quorum_index()
        if index > leader_state._raft_log.commit_index:
            leader_state._raft_log.commit_to(index)
            leader_state.replicator.committed(index, now)


@bug("B2", "only the disks of", 100)
def matching_entries_cut(patch: Patch) -> None:
    """A late or repeated append makes a follower drop entries that it has confirmed."""

    @patch.around(RaftLog, "_holds")
    def forgetful(holds: Original[bool], raft_log: RaftLog, entry: Entry, sender: str) -> bool:
        return holds(raft_log, entry, sender) and entry.index <= raft_log.commit_index


@bug("B5", "its log ends at", 40)
def log_cut_below_the_commit_index(patch: Patch) -> None:
    """A follower cuts to where an append begins, even below its commit index."""

    @patch.around(RaftLog, "accept")
    def rash(accept: Original[Any], raft_log: RaftLog, sender: str, request: AppendRequest) -> Any:
        log = raft_log.entry_cache
        begin = request.prev_index + 1
        if request.entries and log.cached_from <= begin <= log.last_index:
            if raft_log._ready_builder.write().entries:
                return accept(raft_log, sender, request)
            raft_log._ready_builder.write().truncate_from = begin
            log.truncate(begin)
            raft_log.durable_index = min(raft_log.durable_index, begin - 1)
            for pending in raft_log._writes:
                pending[1] = min(pending[1], begin - 1)
        return accept(raft_log, sender, request)


@bug("B6", WRONG, 200)
def commit_index_trusted_beyond_what_matches(patch: Patch) -> None:
    """A follower commits entries that it has, even if they are another leader's."""

    @patch.around(RaftLog, "accept")
    def trusting(
        accept: Original[Any], raft_log: RaftLog, sender: str, request: AppendRequest
    ) -> Any:
        raft_log.commit_index = max(
            raft_log.commit_index, min(request.commit_index, raft_log.entry_cache.last_index)
        )
        return accept(raft_log, sender, request)


@bug("B6b", WRONG, 200)
def heartbeat_commits_what_was_never_compared(patch: Patch) -> None:
    """A heartbeat carries the leader's own commit index, and a follower believes it."""
    send = ReadyBuilder.send

    @patch.instead(Replicator, "_heartbeat")
    def heartbeat(
        replicator: Replicator,
        peer: str,
        commit: int,
        number: int,
        held: tuple[MemberEvidence, ...] = (),
    ) -> None:
        progress = replicator.peers[peer]
        progress.sent_commit = max(progress.sent_commit, commit)
        send(replicator._ready_builder, peer, Heartbeat(replicator._term, commit, number, held))

    @patch.around(RaftState, "follow")
    def followed(
        follow: Original[bool], raft_state: RaftState, sender: str, term: int, now: float
    ) -> bool:
        took = follow(raft_state, sender, term, now)
        if took:
            raft_state._raft_log.verified_index = raft_state._raft_log.entry_cache.last_index
        return took


@bug("B6c", "only the disks of", 200, "partition", "delay", "crash", nodes=5)
def what_matched_an_earlier_leader_is_confirmed(patch: Patch) -> None:
    """What matched the leader of the last term still counts in a new term."""

    @patch.around(RaftLog, "new_term")
    def sure(begun: Original[None], raft_log: RaftLog, write_id: int) -> None:
        verified = raft_log.verified_index
        begun(raft_log, write_id)
        raft_log.verified_index = verified


@bug("B7", "only the disks of", 10)
def minority_counted_as_quorum(patch: Patch) -> None:
    """The quorum is one too small."""

    @patch.instead(QuorumTracker, "quorum_index")
    def one(quorum_tracker: QuorumTracker) -> int:
        return max(
            quorum_tracker._raft_log.durable_index,
            *(progress.match_index for progress in quorum_tracker._replicator.peers.values()),
        )


@bug("B7b", "only the disks of", 20, nodes=5)
def quorum_of_three_used_for_five(patch: Patch) -> None:
    """A majority is the second highest value: right for three voters, wrong for five."""

    @patch.instead(QuorumTracker, "quorum_index")
    def second(quorum_tracker: QuorumTracker) -> int:
        held = [progress.match_index for progress in quorum_tracker._replicator.peers.values()]
        return sorted([quorum_tracker._raft_log.durable_index, *held])[-2]


@bug("B10", "entry by entry", 100)
def divergent_tail_walked_entry_by_entry(patch: Patch) -> None:
    """A conflict goes back by one entry for each round trip."""

    @patch.instead(EntryCache, "last_index_not_above")
    def one_back(log: EntryCache, index: int, _term: int) -> int:
        return min(index, log.last_index) - 1


@bug("B11x", WRONG, 60)
def log_before_an_append_not_compared(patch: Patch) -> None:
    """A follower takes entries without comparing its log before them."""

    @patch.around(RaftLog, "accept")
    def credulous(
        accept: Original[Any], raft_log: RaftLog, sender: str, request: AppendRequest
    ) -> Any:
        previous = min(request.prev_index, raft_log.entry_cache.last_index)
        prev_term = raft_log.entry_cache.term_at(previous) or 0
        return accept(raft_log, sender, replace(request, prev_term=prev_term))

    patch.set(
        RaftLog,
        "_check_continues",
        lambda _raft_log, _entry, _sender, _end, _chain_crc, _term: None,
    )


@bug("B12", "not within", 5)
def lost_entries_never_sent_again(patch: Patch) -> None:
    """Lost messages are not sent again."""
    carry = Network.carry

    @patch.instead(Network, "carry")
    def lossy(network: Network, sender: str, receiver: str, number: int, frame: bytes) -> None:
        if len(frame) < 200:
            carry(network, sender, receiver, number, frame)


@bug("B12b", "not within", 40)
def idle_leader_never_looks_back(patch: Patch) -> None:
    """A leader sends new entries, and nothing again."""

    @patch.instead(Replicator, "tick")
    def tick(
        replicator: Replicator, commit_index: int, now: float, held: tuple[MemberEvidence, ...] = ()
    ) -> None:
        if now >= replicator.heartbeat_at:
            replicator.heartbeat_at = now + replicator._config.heartbeat_seconds
            for peer, progress in replicator.peers.items():
                if progress.connected:
                    replicator._heartbeat(peer, commit_index, replicator.round, held)
        replicator._notice_at = None
        replicator._set_due()
