"""Bugs to plant: each takes one defence out of the shipped code, for the length of a test.

The ids name bugs that real systems had. Bugs that chance takes long to meet (a completion taken
for a later write, votes by length alone) are scenarios of the core in ``tests/dledger`` instead.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

import store.opening
import store.recovery
from dledger.effects import Outbox, Write
from dledger.locallog import LocalLog
from dledger.logwriter import LogWriter
from dledger.messages import AppendRequest, VoteRequest
from dledger.node import Node
from dledger.raft import NOBODY, Raft
from dledger.replication import Replicator
from simulator.disk import SimulatedFileSystem
from simulator.network import Network
from store.commitlog import CommitLog
from store.entry import Entry
from store.replica import ReplicaStore
from store.slotfile import SlotFile

Plant = Callable[[pytest.MonkeyPatch], None]


# --- votes and terms


def vote_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    """A1: an answer that needs the disk leaves at once."""
    patch.setattr(Outbox, "send_after_write", Outbox.send)


def vote_not_saved(patch: pytest.MonkeyPatch) -> None:
    """A3: saving the vote does nothing, and nobody notices."""
    patch.setattr(SlotFile, "save", lambda _file, _payload: None)


def vote_forgotten_at_restart(patch: pytest.MonkeyPatch) -> None:
    """A1, A2: a node comes back in its term, its vote forgotten."""
    begin = Raft.__init__

    def forgetful(core: Raft, **arguments: Any) -> None:
        begin(core, **{**arguments, "vote": NOBODY})

    patch.setattr(Raft, "__init__", forgetful)


def vote_for_a_shorter_log(patch: pytest.MonkeyPatch) -> None:
    """A5: a candidate states its current term for the term of its last entry."""
    for name in ("send", "send_after_write"):
        send = getattr(Outbox, name)

        def boasting(outbox: Outbox, to: str, message: Any, send: Any = send) -> None:
            if isinstance(message, VoteRequest):
                message = replace(message, last_term=message.term)
            send(outbox, to, message)

        patch.setattr(Outbox, name, boasting)


def confirm_before_the_term_is_durable(patch: pytest.MonkeyPatch) -> None:
    """C4: a follower confirms entries to a leader whose term it may forget."""
    patch.setattr(
        LocalLog,
        "match_index",
        property(lambda local: min(local.durable_index, local.verified_index)),
    )


# --- durability


def sync_does_nothing(patch: pytest.MonkeyPatch) -> None:
    """C6: what was written counts as durable."""
    patch.setattr(ReplicaStore, "sync", lambda _store: None)


def follower_confirms_before_its_sync(patch: pytest.MonkeyPatch) -> None:
    """C6: what was received counts as durable on a follower."""
    patch.setattr(LocalLog, "match_index", LocalLog.received_index)


def leader_counts_itself_before_its_sync(patch: pytest.MonkeyPatch) -> None:
    """C5: what was proposed counts as durable on the leader."""
    count = Replicator.quorum_index

    def hasty(replicator: Replicator) -> int:
        replicator.durable(replicator._log.last_index)
        return count(replicator)

    patch.setattr(Replicator, "quorum_index", hasty)


def failed_sync_tried_again(patch: pytest.MonkeyPatch) -> None:
    """C8: a second sync says yes, because the kernel has given the pages up."""
    sync = CommitLog.sync

    def stubborn(log: CommitLog) -> None:
        try:
            sync(log)
        except OSError:
            sync(log)

    patch.setattr(CommitLog, "sync", stubborn)


def segment_name_not_synced(patch: pytest.MonkeyPatch) -> None:
    """A new file is on the disk, and its name is not (ALICE)."""
    sync = SimulatedFileSystem.sync_directory

    def forgetful(fs: SimulatedFileSystem, path: str) -> None:
        if not path.endswith("commitlog"):
            sync(fs, path)

    patch.setattr(SimulatedFileSystem, "sync_directory", forgetful)


def truncation_that_never_reaches_the_disk(patch: pytest.MonkeyPatch) -> None:
    """C3: the core cuts, the file does not."""
    write = LogWriter._write

    def without_cut(writer: LogWriter, writes: Sequence[Write]) -> None:
        for each in writes:
            each.truncate_from = None
        write(writer, writes)

    patch.setattr(LogWriter, "_write", without_cut)


def recovered_pages_taken_for_durable(patch: pytest.MonkeyPatch) -> None:
    """C8: what the page cache holds after a failed sync is trusted by the next process."""
    patch.setattr(store.recovery, "_write_again", lambda _segment, _floor, _end: None)


def torn_tail_not_cut(patch: pytest.MonkeyPatch) -> None:
    """The remains of unfinished writes stay behind the end of the log."""

    def lazy(log: CommitLog, end: int, _floor: int) -> int:
        log.end = log.synced_end = end
        for segment in log.segments.values():
            segment.sync()
        return 0

    patch.setattr(store.opening, "settle", lazy)


def torn_tail_taken_for_damage(patch: pytest.MonkeyPatch) -> None:
    """C10: an unfinished last write keeps the node from starting."""
    settle = store.recovery.settle

    def strict(log: CommitLog, end: int, floor: int) -> int:
        torn = settle(log, end, floor)
        if torn:
            raise OSError(errno.EIO, "the log has a torn tail")
        return torn

    patch.setattr(store.opening, "settle", strict)


# --- log and commit


def commit_of_an_older_term_by_counting(patch: pytest.MonkeyPatch) -> None:
    """B1: figure 8 of the Raft paper."""

    def advance(core: Raft, now: float) -> None:
        if core.replicator is not None:
            index = core.replicator.quorum_index()
            if index > core.commit_index:
                core._local.commit_to(index)
                core.replicator.committed(now)

    patch.setattr(Raft, "_advance_commit", advance)


def minority_counted_as_quorum(patch: pytest.MonkeyPatch) -> None:
    """B7: the quorum is one too small."""

    def one(replicator: Replicator) -> int:
        return max(
            replicator._durable_index,
            *(progress.match_index for progress in replicator.peers.values()),
        )

    patch.setattr(Replicator, "quorum_index", one)


def matching_entries_cut(patch: pytest.MonkeyPatch) -> None:
    """B2: a late or repeated append makes a follower drop what it had confirmed."""
    holds = LocalLog._holds

    def forgetful(local: LocalLog, entry: Entry, sender: str) -> bool:
        return holds(local, entry, sender) and entry.index <= local.commit_index

    patch.setattr(LocalLog, "_holds", forgetful)


def commit_index_trusted_beyond_what_matches(patch: pytest.MonkeyPatch) -> None:
    """B6: a follower commits entries that it has, whoever they are from."""
    accept = LocalLog.accept

    def trusting(local: LocalLog, sender: str, request: AppendRequest) -> Any:
        local.commit_index = max(
            local.commit_index, min(request.commit_index, local.log.last_index)
        )
        return accept(local, sender, request)

    patch.setattr(LocalLog, "accept", trusting)


def log_before_an_append_not_compared(patch: pytest.MonkeyPatch) -> None:
    """A follower takes entries whatever its log holds before them."""
    accept = LocalLog.accept

    def credulous(local: LocalLog, sender: str, request: AppendRequest) -> Any:
        previous = min(request.prev_index, local.log.last_index)
        prev_term = local.log.term_at(previous) or 0
        return accept(local, sender, replace(request, prev_term=prev_term))

    patch.setattr(LocalLog, "_check_continues", lambda _local, _entry, _sender: None)
    patch.setattr(LocalLog, "accept", credulous)


# --- what is told and applied


def acknowledgement_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    """C5: a client is answered when its entry is proposed."""
    propose = Node.propose

    def eager(node: Node, body_size: int, build: Any, done: Any) -> int:
        index = propose(node, body_size, build, lambda _error: None)
        done(None)
        return index

    patch.setattr(Node, "propose", eager)


def entry_applied_twice_after_a_checkpoint(patch: pytest.MonkeyPatch) -> None:
    """C12: the state and the index that it belongs to are one apart."""
    begin = Node.__init__

    def one_behind(made: Node, **arguments: Any) -> None:
        begin(made, **arguments)
        made.applied_index = max(made.applied_index - 1, -1)

    patch.setattr(Node, "__init__", one_behind)


def lost_entries_never_sent_again(patch: pytest.MonkeyPatch) -> None:
    """B12: what is lost on the way stays lost."""
    carry = Network.carry

    def lossy(network: Network, sender: str, receiver: str, number: int, frame: bytes) -> None:
        if len(frame) < 200:
            carry(network, sender, receiver, number, frame)

    patch.setattr(Network, "carry", lossy)


class Bug(NamedTuple):
    """A bug, a part of what the check that must find it says, and how many seeds that may take."""

    plant: Plant
    says: str
    seeds: int


BUGS = [
    Bug(vote_before_it_is_durable, "its disk holds", 5),
    Bug(vote_not_saved, "its disk holds", 5),
    Bug(vote_forgotten_at_restart, "takes its vote for", 20),
    Bug(vote_for_a_shorter_log, "lacks the committed entry", 40),
    Bug(confirm_before_the_term_is_durable, "its disk holds", 20),
    Bug(sync_does_nothing, "its disk does not hold it", 5),
    Bug(follower_confirms_before_its_sync, "its disk does not hold it", 5),
    Bug(leader_counts_itself_before_its_sync, "only the disks of", 20),
    Bug(failed_sync_tried_again, "its disk does not hold it", 60),
    Bug(segment_name_not_synced, "its disk does not hold it", 10),
    Bug(truncation_that_never_reaches_the_disk, "stops by itself", 40),
    Bug(recovered_pages_taken_for_durable, "its disk does not hold it", 60),
    Bug(torn_tail_not_cut, "its disk does not hold it", 60),
    Bug(torn_tail_taken_for_damage, "torn tail", 40),
    Bug(commit_of_an_older_term_by_counting, "by counting", 40),
    Bug(minority_counted_as_quorum, "only the disks of", 10),
    Bug(matching_entries_cut, "only the disks of", 300),
    Bug(commit_index_trusted_beyond_what_matches, "commits another entry", 100),
    Bug(log_before_an_append_not_compared, "commits another entry", 30),
    Bug(acknowledgement_before_the_commit, "which nobody applied", 3),
    Bug(entry_applied_twice_after_a_checkpoint, "the next is", 10),
    Bug(lost_entries_never_sent_again, "not within", 3),
]
