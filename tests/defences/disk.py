"""Takes out each defence of ``store/``, and of its use in ``dledger/``; see ``consensus.py``.

Simulated faults need them in one call of thousands. Tests make that call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import store.log.entry_reader
import store.log.entry_repair
import store.log.row_blocks
import store.recovery.log_scan
import store.recovery.opening
import store.recovery.recovery
import store.recovery.snapshot_install
import store.replica
import store.replica_reads
import store.state.checkpoint
from dledger.node.log_writer import LogWriter
from dledger.node.snapshot_sender import SnapshotSender
from dledger.wire.service_messages import FetchRequest
from simulator.bugs.planted_bug import Patch
from store.errors import DamagedError
from store.io.filesystem import FileSystem
from store.log.commit_log import CommitLog
from store.log.entry_row import EntryIndexRow
from store.log.row_blocks import RowBlocks
from store.recovery.recovery import Recovery
from store.recovery.snapshot_install import COMPLETE_NAME, REFILL_NAME, SnapshotInstall
from store.replica import ReplicaStore
from store.state.checkpoint import Checkpoint
from store.state.durable_mark import DurableMarkTracker


def term_may_fall(patch: Patch) -> None:
    save = ReplicaStore.save_hard_state

    def careless(replica: ReplicaStore, term: int, vote: str) -> None:
        replica._term = min(replica._term, term)
        save(replica, term, vote)

    patch.set(ReplicaStore, "save_hard_state", careless)


def entries_of_a_term_that_is_not_saved(patch: Patch) -> None:
    rows_of = ReplicaStore._rows_of

    def generous(replica: ReplicaStore, entries: Any) -> tuple[bytes, int]:
        term, replica._term = replica._term, 1 << 62
        try:
            return rows_of(replica, entries)
        finally:
            replica._term = term

    patch.set(ReplicaStore, "_rows_of", generous)


def failed_store_goes_on(patch: Patch) -> None:
    patch.set(ReplicaStore, "_check_usable", lambda _replica: None)


def data_of_another_node_opened(patch: Patch) -> None:
    patch.set(store.recovery.opening, "check_identity", lambda _found, _wanted, _path: None)


def mark_set_on_what_is_not_there(patch: Patch) -> None:
    def is_entry(
        _marks: DurableMarkTracker, _index: int, _end_position: int, _chain_crc: int
    ) -> bool:
        return True

    patch.set(DurableMarkTracker, "is_entry", is_entry)


def committed_entries_cut(patch: Patch) -> None:
    lower_for = DurableMarkTracker.lower_for

    def rash(marks: DurableMarkTracker, first_index: int) -> Any:
        object.__setattr__(marks.mark, "commit_index", -1)
        return lower_for(marks, first_index)

    patch.set(DurableMarkTracker, "lower_for", rash)


def checkpoint_of_what_is_not_durable(patch: Patch) -> None:
    save = ReplicaStore.save_checkpoint

    def careless(replica: ReplicaStore, checkpoint: Checkpoint, *, alone: bool = False) -> bool:
        synced, replica._log.synced_end = replica._log.synced_end, replica._log.end
        try:
            return save(replica, checkpoint, alone=alone)
        finally:
            replica._log.synced_end = synced

    patch.set(ReplicaStore, "save_checkpoint", careless)


def one_checkpoint_kept(patch: Patch) -> None:
    patch.set(store.state.checkpoint, "CHECKPOINTS_KEPT", 1)


def mark_not_compared_with_the_log(patch: Patch) -> None:
    patch.set(store.recovery.log_scan, "_check_mark", lambda *_arguments: None)


def what_was_cut_counts_as_synced(patch: Patch) -> None:
    patch.set(LogWriter, "_cut", lambda _writer, _last_index: None)


def padding_not_looked_at(patch: Patch) -> None:
    patch.set(store.log.entry_repair, "_check_padding", lambda _log, _index, _entries, _last: None)


def putback_not_finished(patch: Patch) -> None:
    def finish(_fs: FileSystem, _directory: str, _log: CommitLog) -> None:
        """As if nothing had been noted."""

    patch.set(store.recovery.recovery, "finish", finish)


def what_is_not_committed_given_to_peers(patch: Patch) -> None:
    fetch = SnapshotSender.fetch

    def generous(snapshot_sender: SnapshotSender, peer: str, request: FetchRequest) -> None:
        local = snapshot_sender._core._raft_log
        commit, local.commit_index = local.commit_index, local.entry_cache.last_index
        try:
            fetch(snapshot_sender, peer, request)
        finally:
            local.commit_index = commit

    patch.set(SnapshotSender, "fetch", generous)


def lost_last_entry_tells_nothing(patch: Patch) -> None:
    patch.set(Recovery, "_is_on_disk", lambda _recovery, _entry: True)


def rows_not_checked(patch: Patch) -> None:
    patch.set(RowBlocks, "_check", lambda *_arguments: None)


def wrong_rows_given_up(patch: Patch) -> None:
    def rows_from_headers(*_arguments: Any, **_last: int) -> list[EntryIndexRow]:
        raise DamagedError("index", 0, "a wrong row")

    patch.set(store.log.row_blocks, "rows_from_headers", rows_from_headers)


# --- refills


def refill_begun_for_a_term_to_come(patch: Patch) -> None:
    begin = SnapshotInstall.begin

    def careless(
        fs: FileSystem, directory: str, plan: Any, data: bytes, _term_max: int, **sizes: int
    ) -> SnapshotInstall:
        return begin(fs, directory, plan, data, 1 << 62, **sizes)

    patch.set(SnapshotInstall, "begin", staticmethod(careless))


def refill_not_tied_together(patch: Patch) -> None:
    def append(refill: SnapshotInstall, entries: Any) -> None:
        refill._log.append(entries)
        refill.next_index = entries[-1].index + 1

    patch.set(SnapshotInstall, "append", append)


def refill_complete_before_its_entries_are_durable(patch: Patch) -> None:
    complete = SnapshotInstall.complete

    def hasty(refill: SnapshotInstall, floor: int) -> None:
        vars(refill._log)["sync"] = lambda: None
        complete(refill, floor)

    patch.set(SnapshotInstall, "complete", hasty)


def refill_does_not_raise_the_term(patch: Patch) -> None:
    patch.set(store.recovery.snapshot_install, "raise_term", lambda _fs, _path, _term: None)


def refill_forgotten_before_it_is_installed(patch: Patch) -> None:
    raise_term: Callable[[FileSystem, str, int], None] = store.recovery.snapshot_install.raise_term

    def first(fs: FileSystem, path: str, term: int) -> None:
        directory = path.rpartition("/state/")[0]
        complete = f"{directory}/{REFILL_NAME}/{COMPLETE_NAME}"
        if fs.exists(complete):
            fs.remove(complete)
            fs.sync_directory(f"{directory}/{REFILL_NAME}")
        raise_term(fs, path, term)

    patch.set(store.recovery.snapshot_install, "raise_term", first)


def refill_without_a_floor(patch: Patch) -> None:
    patch.set(store.replica, "read_vote_floor", lambda _fs, _directory: -1)


def refill_leaves_what_was_derived(patch: Patch) -> None:
    patch.set(store.recovery.snapshot_install, "DERIVED", ())
