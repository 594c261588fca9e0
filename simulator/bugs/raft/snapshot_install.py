"""Planted bugs B and C of compaction: a member lacks expired entries and must be refilled."""

from __future__ import annotations

from collections.abc import Sequence

import store.recovery.snapshot_install
from dledger.node.snapshot_receiver import SnapshotReceiver
from dledger.raft.messages import AppendAccepted, AppendRejected, AppendRequest
from dledger.raft.raft_log import RaftLog
from dledger.wire.service_messages import SnapshotNeededNotice
from simulator.bugs.planted_bug import BugsOf, Original, Patch
from store.io.atomic_file import replace_file
from store.io.filesystem import Bytes, FileSystem
from store.log.entry import Entry
from store.recovery.snapshot_install import SnapshotInstall
from store.state.hard_state import MARK_NAME

KINDS = ("expiry", "partition", "crash")


bug = BugsOf(seconds=10.0)


@bug("B11", "not within", 10, *KINDS)
def follower_behind_the_log_is_ignored(patch: Patch) -> None:
    """A leader does nothing for a follower that needs expired entries."""

    @patch.instead(SnapshotReceiver, "noticed")
    def silent(_catch_up: SnapshotReceiver, _leader: str, _notice: SnapshotNeededNotice) -> None:
        """As if no notice had come."""


@bug("B4", "not within", 10, *KINDS)
def refill_skips_an_entry(patch: Patch) -> None:
    """The first piece of a refill lacks its first entry, and all others move down by one."""

    @patch.around(SnapshotInstall, "append")
    def skipping(append: Original[None], refill: SnapshotInstall, entries: Sequence[Entry]) -> None:
        if refill.next_index == refill.plan.first_index and len(entries) > 1:
            refill.next_index += 1
            entries = entries[1:]
        append(refill, entries)


@bug("C14", "takes its log for damaged", 10, *KINDS)
def refill_installed_without_its_mark(patch: Patch) -> None:
    """A refill replaces the log, but not the durable mark."""

    @patch.instead(store.recovery.snapshot_install, "replace_file")
    def forgetful(fs: FileSystem, directory: str, name: str, data: Bytes) -> None:
        if name != MARK_NAME:
            replace_file(fs, directory, name, data)


@bug("C13", "takes its log for damaged", 10, *KINDS)
def refill_taken_for_complete_too_early(patch: Patch) -> None:
    """A refill is installed as soon as its checkpoint is there."""
    patch.set(SnapshotInstall, "ended", property(lambda _refill: True))


@bug("B3", "cannot drop entry", 60, "follower unheard", seconds=12.0)
def given_up_entries_are_a_conflict(patch: Patch) -> None:
    """An append that follows an expired entry is taken for a conflict, and cuts."""

    @patch.around(RaftLog, "accept")
    def cutting(
        accept: Original[AppendAccepted | AppendRejected | None],
        raft_log: RaftLog,
        sender: str,
        request: AppendRequest,
    ) -> AppendAccepted | AppendRejected | None:
        if request.prev_index < raft_log.entry_cache.first_index - 1:
            raft_log._truncate(request.prev_index + 1)
        return accept(raft_log, sender, request)
