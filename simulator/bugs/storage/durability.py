"""Planted bugs C: disk, durability, asynchronous input and output."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import store.log.layout
import store.recovery.recovery
import store.recovery.torn_tail
from dledger.node.checkpointer import Checkpointer
from dledger.node.core_driver import CoreDriver
from dledger.node.log_writer import LogWriter
from dledger.node.node import Node
from dledger.raft.quorum_tracker import QuorumTracker
from dledger.raft.raft_log import RaftLog
from dledger.raft.ready import Write
from simulator.bugs.planted_bug import BugsOf, Original, Patch
from simulator.engine.disk import SimulatedFileSystem
from simulator.worlds.registry import BROKERS
from store.log.commit_log import CommitLog
from store.recovery.recovery import Recovery
from store.replica import ReplicaStore

bug = BugsOf()


@bug("C1", "its disk does not hold it", 100)
def completion_taken_for_a_later_write(patch: Patch) -> None:
    """A write in progress is cut, and its completion counts for the entries that replace it."""

    @patch.around(RaftLog, "_truncate")
    def careless(cut: Original[None], raft_log: RaftLog, first_index: int) -> None:
        pending = [list(each) for each in raft_log._writes]
        cut(raft_log, first_index)
        for kept, before in zip(raft_log._writes, pending, strict=True):
            kept[1] = before[1]


@bug("C2", "not within", 40)
def completions_reported_one_late(patch: Patch) -> None:
    """Only the first write of a sync counts as durable."""

    @patch.around(CoreDriver, "written")
    def forgetful(written: Original[None], driver: CoreDriver, writes: Sequence[Write]) -> None:
        written(driver, writes[:1])


@bug("C3", "stops by itself", 60)
def truncation_that_never_reaches_the_disk(patch: Patch) -> None:
    """The core cuts its log, and the file stays unchanged."""

    @patch.around(LogWriter, "_write")
    def without_cut(write: Original[None], writer: LogWriter, writes: Sequence[Write]) -> None:
        for each in writes:
            each.truncate_from = None
        write(writer, writes)


@bug("C4", "its disk holds", 40)
def confirm_before_the_term_is_durable(patch: Patch) -> None:
    """A follower confirms entries to a leader whose term it may forget."""
    patch.set(
        RaftLog,
        "match_index",
        property(lambda raft_log: min(raft_log.durable_index, raft_log.verified_index)),
    )


@bug("C5", "only the disks of | its disk does not hold it", 40)
def leader_counts_itself_before_its_sync(patch: Patch) -> None:
    """A proposed entry counts as durable on the leader."""

    @patch.around(QuorumTracker, "quorum_index")
    def hasty(count: Original[int], quorum_tracker: QuorumTracker) -> int:
        quorum_tracker._raft_log.durable_index = quorum_tracker._raft_log.entry_cache.last_index
        return count(quorum_tracker)


@bug("C5b", "which nobody applied", 3)
def acknowledgement_before_the_commit(patch: Patch) -> None:
    """A client is answered when its entry is proposed."""

    @patch.around(Node, "propose")
    def eager(propose: Original[int], node: Node, body_size: int, build: Any, done: Any) -> int:
        index = propose(node, body_size, build, lambda _error: None)
        done(None)
        return index


@bug("C6", "its disk does not hold it", 20)
def follower_confirms_before_its_sync(patch: Patch) -> None:
    """A received entry counts as durable on a follower."""
    patch.set(RaftLog, "match_index", RaftLog.received_index)


@bug("C7", "its disk does not hold it", 5)
def sync_does_nothing(patch: Patch) -> None:
    """A written entry counts as durable without a sync."""
    patch.set(ReplicaStore, "begin_append", _write_and_sync_apart)
    patch.set(ReplicaStore, "sync", lambda _store: None)


def _write_and_sync_apart(*_arguments: Any) -> bool:
    return False


@bug("C8", "its disk does not hold it", 100)
def failed_sync_tried_again(patch: Patch) -> None:
    """A second sync succeeds, because the kernel has dropped the pages."""

    @patch.around(CommitLog, "sync")
    def stubborn(sync: Original[None], log: CommitLog) -> None:
        try:
            sync(log)
        except OSError:
            sync(log)

    patch.set(ReplicaStore, "begin_append", _write_and_sync_apart)


@bug("C8b", "its disk does not hold it", 200)
def recovered_pages_taken_for_durable(patch: Patch) -> None:
    """After a failed sync the next process trusts the page cache."""
    patch.set(store.recovery.torn_tail, "_write_again", lambda *_arguments: None)


@bug("C10", "torn tail", 60)
def torn_tail_taken_for_damage(patch: Patch) -> None:
    """An unfinished last write keeps the node from starting."""
    clean_tail = store.recovery.torn_tail.clean_tail

    @patch.instead(store.recovery.recovery, "clean_tail")
    def strict(log: CommitLog, end: int, floor: int) -> int:
        torn = clean_tail(log, end, floor)
        if torn:
            raise OSError(errno.EIO, "the log has a torn tail")
        return torn


@bug("C10b", "its disk does not hold it", 100)
def torn_tail_not_cut(patch: Patch) -> None:
    """The remains of unfinished writes stay behind the end of the log."""

    @patch.instead(store.recovery.recovery, "clean_tail")
    def lazy(log: CommitLog, end: int, _floor: int) -> int:
        log.end = log.synced_end = end
        for segment in log.segments.values():
            segment.sync()
        return 0


@bug("C12", "the next is", 20)
def entry_applied_twice_after_a_checkpoint(patch: Patch) -> None:
    """The state and its index are one apart."""

    @patch.around(Node, "__init__")
    def one_behind(begin: Original[None], made: Node, **arguments: Any) -> None:
        begin(made, **arguments)
        made.applier.applied_index = max(made.applied_index - 1, -1)


@bug("C15", "was durable", 100, "power loss", "slow disk")
def mark_saved_ahead_of_the_log(patch: Patch) -> None:
    """Committed entries count as durable here, though this disk may lack them."""

    @patch.instead(Checkpointer, "_save_mark")
    def mark(checkpointer: Checkpointer) -> None:
        log = checkpointer._core.entry_cache
        entry = log.entry(log.last_index)
        replica = checkpointer._store
        marks = replica._marks
        if entry is not None and entry.index > marks.mark.index:
            ahead = replace(
                marks.mark, index=entry.index, position=entry.end, chain_crc=entry.chain_crc
            )
            marks.save(ahead)


@bug("C16", "not within", 60, "disk error")
def failed_write_ignored(patch: Patch) -> None:
    """A node whose disk failed goes on answering."""

    @patch.around(LogWriter, "_written")
    def deaf(
        written: Original[None], writer: LogWriter, result: None, error: BaseException | None
    ) -> None:
        if error is None:
            written(writer, result, error)

    # Otherwise housekeeping would notice: nothing can be saved any more.
    patch.set(Checkpointer, "_failed", lambda _checkpointer, error: error is not None)


@bug(
    "C9",
    "to be committed and durable",
    10,
    "bit flip",
    "crash",
    "power loss",
    "partition",
    world=BROKERS,
    seconds=8.0,
)
def damage_taken_for_a_torn_tail(patch: Patch) -> None:
    """A damaged entry is taken for an unfinished last write, and all behind it is cut."""

    @patch.around(Recovery, "_read_on")
    def rash(read_on: Original[None], recovery: Recovery) -> None:
        recovery._durable_position = 0
        read_on(recovery)
        recovery._commit_index = min(recovery._commit_index, recovery._found.last_index)

    patch.set(Recovery, "_find_lost_segments", lambda _recovery: None)


@bug("C18", "was durable", 20)
def segment_closed_without_padding(patch: Patch) -> None:
    """A segment is closed without padding."""
    patch.set(store.log.layout, "padding", bytes)


@bug("C19x", "its disk does not hold it", 20)
def segment_name_not_synced(patch: Patch) -> None:
    """A new file is on the disk, but its name is not."""
    _unsynced(patch, lambda path: path.endswith("commitlog"))


@bug("C20x", "its disk holds None", 5)
def renamed_file_not_synced(patch: Patch) -> None:
    """A file is renamed into place, but the rename is not on the disk."""
    _unsynced(patch, lambda path: path.endswith("state"))


def _unsynced(patch: Patch, concerns: Callable[[str], bool]) -> None:
    @patch.around(SimulatedFileSystem, "sync_directory")
    def forgetful(sync: Original[None], fs: SimulatedFileSystem, path: str) -> None:
        if not concerns(path):
            sync(fs, path)
