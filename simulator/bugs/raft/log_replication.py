"""Planted bugs B: log matching and commit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dledger.raft.entry_cache import RaftLog
from dledger.raft.leader import Leading
from dledger.raft.messages import AppendRequest, Heartbeat
from dledger.raft.quorum_tracker import Majorities
from dledger.raft.raft_log import LocalLog
from dledger.raft.raft_state import Standing
from dledger.raft.ready import Outbox
from dledger.raft.replication import Replicator
from dledger.raft.replication_evidence import Holding
from simulator.bugs.planted_bug import Bug, Patch
from simulator.engine.peer_network import Network
from store.log.entry import Entry


def commit_of_an_older_term_by_counting(patch: Patch) -> None:
    """Figure 8 of the Raft paper: copies of an entry of an earlier term are counted."""

    def advance(leading: Leading, now: float) -> None:
        index = leading.majorities.quorum_index()
        if index > leading._local.commit_index:
            leading._local.commit_to(index)
            leading.replicator.committed(index, now)

    patch.set(Leading, "advance_commit", advance)


def matching_entries_cut(patch: Patch) -> None:
    """A late or repeated append makes a follower drop what it had confirmed."""
    holds = LocalLog._holds

    def forgetful(local: LocalLog, entry: Entry, sender: str) -> bool:
        return holds(local, entry, sender) and entry.index <= local.commit_index

    patch.set(LocalLog, "_holds", forgetful)


def log_cut_below_the_commit_index(patch: Patch) -> None:
    """A follower cuts to where an append begins, whatever of it is committed."""
    accept = LocalLog.accept

    def rash(local: LocalLog, sender: str, request: AppendRequest) -> Any:
        log = local.log
        begin = request.prev_index + 1
        if request.entries and log.cached_from <= begin <= log.last_index:
            if local._outbox.write().entries:
                return accept(local, sender, request)
            local._outbox.write().truncate_from = begin
            log.truncate(begin)
            local.durable_index = min(local.durable_index, begin - 1)
            for pending in local._writes:
                pending[1] = min(pending[1], begin - 1)
        return accept(local, sender, request)

    patch.set(LocalLog, "accept", rash)


def commit_index_trusted_beyond_what_matches(patch: Patch) -> None:
    """A follower commits entries that it has, whoever they are from."""
    accept = LocalLog.accept

    def trusting(local: LocalLog, sender: str, request: AppendRequest) -> Any:
        local.commit_index = max(
            local.commit_index, min(request.commit_index, local.log.last_index)
        )
        return accept(local, sender, request)

    patch.set(LocalLog, "accept", trusting)


def heartbeat_commits_what_was_never_compared(patch: Patch) -> None:
    """A heartbeat carries the leader's own commit index, and a follower takes its word for it."""
    send = Outbox.send
    follow = Standing.follow

    def heartbeat(
        replicator: Replicator,
        peer: str,
        commit: int,
        number: int,
        held: tuple[Holding, ...] = (),
    ) -> None:
        progress = replicator.peers[peer]
        progress.sent_commit = max(progress.sent_commit, commit)
        send(replicator._outbox, peer, Heartbeat(replicator._term, commit, number, held))

    def followed(standing: Standing, sender: str, term: int, now: float) -> bool:
        took = follow(standing, sender, term, now)
        if took:
            standing._local.verified_index = standing._local.log.last_index
        return took

    patch.set(Replicator, "_heartbeat", heartbeat)
    patch.set(Standing, "follow", followed)


def what_matched_an_earlier_leader_is_confirmed(patch: Patch) -> None:
    """A new term begins, and what was compared with the leader of the last one still counts."""
    begun = LocalLog.new_term

    def sure(local: LocalLog, write_id: int) -> None:
        verified = local.verified_index
        begun(local, write_id)
        local.verified_index = verified

    patch.set(LocalLog, "new_term", sure)


def minority_counted_as_quorum(patch: Patch) -> None:
    """The quorum is one too small."""

    def one(majorities: Majorities) -> int:
        return max(
            majorities._local.durable_index,
            *(progress.match_index for progress in majorities._replicator.peers.values()),
        )

    patch.set(Majorities, "quorum_index", one)


def quorum_of_three_used_for_five(patch: Patch) -> None:
    """A short cut that is right for three voters, the second highest, and wrong for five."""

    def second(majorities: Majorities) -> int:
        held = [progress.match_index for progress in majorities._replicator.peers.values()]
        return sorted([majorities._local.durable_index, *held])[-2]

    patch.set(Majorities, "quorum_index", second)


def divergent_tail_walked_entry_by_entry(patch: Patch) -> None:
    """A conflict goes back by one entry for each round trip."""

    def one_back(log: RaftLog, index: int, _term: int) -> int:
        return min(index, log.last_index) - 1

    patch.set(RaftLog, "last_index_not_above", one_back)


def log_before_an_append_not_compared(patch: Patch) -> None:
    """A follower takes entries whatever its log holds before them."""
    accept = LocalLog.accept

    def credulous(local: LocalLog, sender: str, request: AppendRequest) -> Any:
        previous = min(request.prev_index, local.log.last_index)
        prev_term = local.log.term_at(previous) or 0
        return accept(local, sender, replace(request, prev_term=prev_term))

    patch.set(
        LocalLog, "_check_continues", lambda _local, _entry, _sender, _end, _chain_crc, _term: None
    )
    patch.set(LocalLog, "accept", credulous)


def lost_entries_never_sent_again(patch: Patch) -> None:
    """What is lost on the way stays lost."""
    carry = Network.carry

    def lossy(network: Network, sender: str, receiver: str, number: int, frame: bytes) -> None:
        if len(frame) < 200:
            carry(network, sender, receiver, number, frame)

    patch.set(Network, "carry", lossy)


def idle_leader_never_looks_back(patch: Patch) -> None:
    """A leader sends what is new, and nothing again."""

    def tick(
        replicator: Replicator, commit_index: int, now: float, held: tuple[Holding, ...] = ()
    ) -> None:
        if now >= replicator.heartbeat_at:
            replicator.heartbeat_at = now + replicator._config.heartbeat_seconds
            for peer, progress in replicator.peers.items():
                if progress.connected:
                    replicator._heartbeat(peer, commit_index, replicator.round, held)
        replicator._notice_at = None

    patch.set(Replicator, "tick", tick)


WRONG = "commits another entry | committed entry"

BUGS = (
    Bug("B1", commit_of_an_older_term_by_counting, "by counting", 40),
    Bug("B2", matching_entries_cut, "only the disks of", 300),
    Bug("B5", log_cut_below_the_commit_index, "its log ends at", 40),
    Bug("B6", commit_index_trusted_beyond_what_matches, WRONG, 200),
    Bug("B6b", heartbeat_commits_what_was_never_compared, WRONG, 200),
    Bug(
        "B6c",
        what_matched_an_earlier_leader_is_confirmed,
        "only the disks of",
        300,
        nodes=5,
        kinds=("partition", "delay", "crash"),
    ),
    Bug("B7", minority_counted_as_quorum, "only the disks of", 10),
    Bug("B7b", quorum_of_three_used_for_five, "only the disks of", 20, nodes=5),
    Bug("B10", divergent_tail_walked_entry_by_entry, "entry by entry", 100),
    Bug("B11x", log_before_an_append_not_compared, WRONG, 60),
    Bug("B12", lost_entries_never_sent_again, "not within", 5),
    Bug("B12b", idle_leader_never_looks_back, "not within", 40),
)
