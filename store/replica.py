"""The store of one replica: log, entry index, hard state, mark and checkpoints, in one directory.

::

    <directory>/lock                        held while the store is open
    <directory>/state/format                whose data this is, in which format
    <directory>/state/vote                  term and vote
    <directory>/state/mark                  up to where the log is known to be durable
    <directory>/state/held                  replication evidence: what other disks hold
    <directory>/state/checkpoint-<index>    the newest two checkpoints, and what peers fetch
    <directory>/commitlog/<position>        segments of the log
    <directory>/index/<byte>                files of the entry index

Threads. One *storage thread* calls ``save_hard_state``, ``append``, ``truncate`` and ``sync``, one
after the other. While it has nothing to do, any thread may call ``begin_append``. One *background
thread* calls ``preallocate_next``, ``drop_cached``, ``save_mark``, ``save_evidence``,
``save_checkpoint``, ``expire`` and the repairs at the same time. Any thread reads.

The two writers own different bytes. The storage thread owns the log from its end on. The background
thread owns the zeros ahead of it (:mod:`store.log.segment`), corrupt committed entries, and the
files of committed entries, which are never truncated. They share only the mark: a truncation may
lower it (:mod:`store.state.durable_mark`). A reader notices a truncation, and reads again.

Failures. A full disk is a :class:`~store.errors.DiskFullError` and leaves the store as it was. Any
other failed write or sync is a :class:`~store.errors.FatalDiskError`: what the disk holds is then
unknown, and every later change is refused with the same error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from store.errors import DamagedError, DiskFullError, FatalDiskError, SnapshotError, StoreError
from store.io.atomic_file import replace_file
from store.io.filesystem import FileSystem
from store.log.commit_log import OUT_OF_SPACE
from store.log.entry import Entry
from store.log.entry_reader import index_at
from store.log.entry_repair import repair_entry, repair_padding
from store.log.entry_row import ROW
from store.log.layout import segment_start
from store.log.removed_segments import restore_removed
from store.recovery.log_scan import RecoveredReplica
from store.recovery.opening import StoreConfig
from store.recovery.recovery import OpenParts, Recovery
from store.recovery.snapshot_install import (
    REBUILD_NAME,
    InstallPlan,
    SnapshotInstall,
    clear_vote_floor,
    forget,
    is_begun,
    read_vote_floor,
)
from store.replica_reads import ReplicaReads
from store.snapshot import SnapshotWriter
from store.state.checkpoint import Checkpoint
from store.state.hard_state import HardState
from store.state.replication_evidence_file import SavedEvidence

__all__ = ["RecoveredReplica", "ReplicaStore", "StoreConfig"]


class ReplicaStore(ReplicaReads):
    """See the module. Made by :meth:`open`, ended by :meth:`close`."""

    def __init__(self, fs: FileSystem, directory: str, parts: OpenParts) -> None:
        super().__init__(fs, directory, parts)
        self._lock = parts.lock
        self._vote_file = parts.state.vote_file
        self._held_file = parts.state.evidence_file
        self._term = parts.state.hard_state.term
        self._last_term = parts.last_term
        self._failure: FatalDiskError | None = None
        self.recovered = parts.recovered

    @staticmethod
    def open(fs: FileSystem, directory: str, config: StoreConfig) -> ReplicaStore:
        """Opens and recovers the replica in ``directory``. Creates it if there is none.

        Raises :class:`~store.errors.DataLockedError` if another process has it open,
        :class:`~store.errors.DataFormatError` if it is another node's or of another version,
        :class:`~store.errors.DamagedError` if bytes that were durable are wrong, and
        :class:`~store.errors.FatalDiskError` if the disk fails.
        """
        recovery = Recovery(fs, directory, config)
        if recovery.hole is not None:
            recovery.close()
            raise recovery.hole.error
        return ReplicaStore(fs, directory, recovery.finish())

    # The storage thread.

    def save_hard_state(self, term: int, vote: str) -> None:
        """Durably replaces term and vote.

        Raises :class:`~store.errors.StoreError` if the term would become smaller.
        """
        with self._writing("saving the vote"):
            if term < self._term:
                raise StoreError(f"the term cannot fall from {self._term} to {term}")
            self._vote_file.save(HardState(term, vote).pack())
        self._term = term

    def append(self, entries: Sequence[Entry]) -> None:
        """Writes entries behind the last one, byte for byte. They are durable after :meth:`sync`.

        The caller checks the chain. Raises :class:`~store.errors.StoreError` for an entry that does
        not follow in index, position or term, or whose term is above the saved one (Raft: a term is
        durable before anything is accepted in it). Raises :class:`~store.errors.DiskFullError`. In
        both cases the log ends where it did.
        """
        with self._writing("appending"):
            rows, term = self._rows_of(entries)
            self._log.append(entries)
        self._index.append(rows)
        self._last_term = term

    def begin_append(
        self, entries: Sequence[Entry], then: Callable[[BaseException | None], None]
    ) -> bool:
        """Begins what :meth:`append` and :meth:`sync` do, if async I/O is possible; else returns
        ``False``.

        Any thread may call it while the storage thread has nothing to do. The storage thread must
        stay idle until ``then`` is called in the same thread: with ``None`` if all is durable, with
        an error, or with a ``BlockingIOError`` if :meth:`append` and :meth:`sync` must do it. If
        this raises what :meth:`append` raises, nothing was begun.
        """
        self._check_usable()
        rows, term = self._rows_of(entries)

        def written() -> None:
            self._index.append(rows)
            self._last_term = term

        def ended(error: OSError | None) -> None:
            if error is None or isinstance(error, BlockingIOError):
                then(error)
            else:
                then(self._fail("appending", error))

        return self._log.begin_append(entries, written, ended)

    def _rows_of(self, entries: Sequence[Entry]) -> tuple[bytes, int]:
        """The rows of the entries in the entry index, and the last term.

        Raises :class:`~store.errors.StoreError` if an entry does not follow the one before.
        """
        rows = []
        index, term = self._index.end_index, self._last_term
        for entry in entries:
            if entry.index != index or not term <= entry.term <= self._term:
                raise StoreError(
                    f"entry {entry.index} of term {entry.term} does not follow entry {index - 1} "
                    f"of term {term} in term {self._term}"
                )
            term = entry.term
            rows.append(ROW.pack(entry.kind, entry.position, len(entry.data), index, term))
            index += 1
        return b"".join(rows), term

    def truncate(self, first_index: int) -> None:
        """Drops the entries from ``first_index`` on; durable on return.

        Raises :class:`~store.errors.StoreError` if that would drop a committed entry.
        """
        with self._writing("truncating"):
            if first_index > self.last_index:
                return
            with self._marks.lock:
                kept = self._marks.lower_for(first_index)
                self._index.truncate(first_index)
                self._truncations += 1
                self._log.truncate(kept.position)
                kept_any = kept.index >= self.first_index
                self._last_term = self._index.row(kept.index).term if kept_any else 0

    def sync(self) -> None:
        """Makes all appended entries durable. If that fails, the store accepts no more writes."""
        with self._writing("syncing the log"):
            self._log.sync()

    # The background thread.

    def save_mark(self, index: int, position: int, chain_crc: int, commit_index: int) -> bool:
        """Durably notes that the log is durable up to entry ``index``, which ends at ``position``.

        Returns ``False``, and saves nothing, if the entry is not synced yet, or if a truncation has
        replaced it since the caller looked.
        """
        with self._writing("saving the mark"):
            return self._marks.raise_to(index, position, chain_crc, commit_index)

    def save_evidence(self, held: Sequence[SavedEvidence]) -> None:
        """Durably saves the replication evidence: how much of the log the disks of others hold.

        Raises :class:`~store.errors.DiskFullError`, and nothing changed.
        """
        with self._writing("saving what others hold", may_be_full_for="state/held"):
            self._held_file.save(held)

    def save_checkpoint(self, checkpoint: Checkpoint, *, alone: bool = False) -> bool:
        """Durably saves a checkpoint and the entry index up to it.

        ``alone``: the other checkpoints are removed, and derived files are rebuilt at the next
        start. Returns ``False``, and saves nothing, if the log is not durable up to the checkpoint
        yet: a leader may commit and apply an entry before its own disk has synced it. Raises
        :class:`~store.errors.DiskFullError`, and nothing changed.
        """
        with self._writing("saving a checkpoint", may_be_full_for="a checkpoint"):
            if checkpoint.end_position > self._log.synced_end:
                return False
            with self._marks.lock:
                if not self._marks.is_entry(
                    checkpoint.index, checkpoint.end_position, checkpoint.chain_crc
                ):
                    raise StoreError(f"the checkpoint of {checkpoint.index} is not of this log")
                self._index.flush(checkpoint.index + 1)
            if alone:
                replace_file(self._fs, f"{self._directory}/state", REBUILD_NAME, b"")
            self.checkpoints.save(checkpoint, alone=alone)
        return True

    def expire(self, position: int) -> None:
        """Removes the segments that lie wholly below ``position``, and their index rows.

        What recovery needs stays, from the second newest checkpoint on. Raises
        :class:`~store.errors.DamagedError`, and removes nothing, if no row of the entry index says
        which entry begins there.
        """
        with self._writing("expiring"):
            oldest = self.checkpoints.oldest
            if oldest is None:
                return
            position = min(position, oldest.end_position)
            first_position = segment_start(position, self._log.segment_size)
            if first_position <= self._log.first_position:
                return
            first_index = index_at(self._index, first_position, oldest.index)
            if self._index.position(first_index) != first_position:
                path, byte = self._log.locate(first_position)
                raise DamagedError(path, byte, "no row says what entry begins here")
            self.checkpoints.drop_before(first_position)
            self._marks.begin_at(first_index, first_position)
            self._index.expire(first_index, first_position)
            self._log.expire(first_position)

    def begin_snapshot(self, target: str, time_ms: int) -> SnapshotWriter:
        """A snapshot of the newest checkpoint, to be made in the directory ``target``.

        Raises :class:`~store.errors.SnapshotError` if no entry is committed yet.
        """
        checkpoint = self.checkpoints.newest
        if checkpoint is None or checkpoint.index < self.first_index:
            raise SnapshotError("there is nothing yet to make a snapshot of: no entry is committed")
        return SnapshotWriter(
            self._fs,
            self._directory,
            target,
            checkpoint=checkpoint,
            beginning=self.beginning(),
            time_ms=time_ms,
        )

    def discard_snapshot(self, target: str) -> None:
        """Removes a snapshot that was made in the directory ``target``."""
        self._fs.remove_tree(target)

    @property
    def needs_preallocation(self) -> bool:
        """Whether :meth:`preallocate_next` has something to do, if the disk has room."""
        return self._log.needs_preallocation

    def preallocate_next(self) -> None:
        """Writes synced zeros where the log will continue.

        It takes long, and stops when the store is closed. A full disk is no error here:
        :meth:`has_room` reports it in time.
        """
        with self._writing("preparing a segment"):
            self._log.preallocate_next()

    def drop_cached(self) -> None:
        """Drops the older part of the log from the page cache, where nobody reads it."""
        with self._writing("opening a segment"):
            self._log.drop_cached()

    # The background thread: repair and refill.

    def repair_entry(self, entry: Entry) -> None:
        """Replaces a damaged entry by a peer's; see :mod:`store.log.entry_repair`.

        Background thread, and committed entries only. Raises :class:`~store.errors.StoreError`
        if the entry does not fit, :class:`~store.errors.DiskFullError`, after which it counts as
        damaged still, and :class:`FatalDiskError`.
        """
        with self._writing("repairing an entry", may_be_full_for="a damaged entry"):
            known = self._marks.committed_end
            repair_entry(self._fs, self._directory, self._log, self._index, entry, known_end=known)

    def repair_index(self) -> list[int]:
        """Durably repairs wrong rows of the index that reads have met; returns whose."""
        with self._writing("repairing the entry index", goes_on_if_full=True):
            return self._index.repair()
        return []

    def repair_padding(self, index: int) -> bool:
        """Repairs the padding behind an entry; False: no room. Raises :class:`FatalDiskError`."""
        with self._writing("repairing a padding", goes_on_if_full=True):
            return repair_padding(self._fs, self._directory, self._log, self._index, index)
        return False

    def restore_removed(self) -> list[str]:
        """See :mod:`store.log.removed_segments`. Raises :class:`FatalDiskError`."""
        with self._writing("restoring a segment", goes_on_if_full=True):
            return restore_removed(self._fs, self._log)
        return []

    def begin_snapshot_install(
        self, plan: InstallPlan, checkpoint_data: bytes, term_max: int
    ) -> SnapshotInstall:
        """Begins a refill beside this log; see :mod:`store.recovery.snapshot_install`."""
        fs, directory, sizes = self._fs, self._directory, self._log_sizes
        return SnapshotInstall.begin(fs, directory, plan, checkpoint_data, term_max, **sizes)

    def resume_snapshot_install(self) -> SnapshotInstall | None:
        """The refill that an earlier process began, if it is of use."""
        return SnapshotInstall.resume(self._fs, self._directory, **self._log_sizes)

    @property
    def _log_sizes(self) -> dict[str, int]:
        return {"segment_size": self._log.segment_size, "min_free_bytes": self._log.min_free_bytes}

    def holds_snapshot_install(self) -> bool:
        """Whether an earlier process may have begun a refill."""
        return is_begun(self._fs, self._directory)

    def forget_snapshot_install(self) -> None:
        """Removes a refill that is of no use any more, and closed."""
        forget(self._fs, self._directory)

    def read_vote_floor(self) -> int:
        """The entry that this replica must hold again before it may vote; -1 for none."""
        return read_vote_floor(self._fs, self._directory)

    def clear_vote_floor(self) -> None:
        """Removes the vote floor: the replica holds all that it ever confirmed.

        Raises :class:`FatalDiskError`.
        """
        try:
            clear_vote_floor(self._fs, self._directory)
        except OSError as error:
            raise self._fail("removing the vote floor", error) from error

    def close(self) -> None:
        """Closes all files, then releases the lock. No other call may be under way.

        Nothing is synced: what must be durable was synced before. Later writes are refused, because
        they would open files that are no longer this process's.
        """
        if self._failure is None:
            self._failure = FatalDiskError(f"{self._directory}: the store is closed")
        self._log.close()
        self._index.close()
        self._vote_file.close()
        self._marks.close()
        self._held_file.close()
        self._lock.release()

    @contextmanager
    def _writing(
        self, action: str, *, may_be_full_for: str = "", goes_on_if_full: bool = False
    ) -> Iterator[None]:
        """Refuses if the store has failed. A failed write or sync makes it fail.

        A full disk is a :class:`~store.errors.DiskFullError` if ``may_be_full_for`` says for what,
        and no error at all with ``goes_on_if_full``.
        """
        self._check_usable()
        try:
            yield
        except OSError as error:
            if goes_on_if_full and error.errno in OUT_OF_SPACE:
                return
            if may_be_full_for and error.errno in OUT_OF_SPACE:
                what = f"{self._directory}: no room for {may_be_full_for}"
                raise DiskFullError(what) from error
            raise self._fail(action, error) from error

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise FatalDiskError(f"the store failed before: {self._failure}")

    def _fail(self, action: str, error: OSError) -> FatalDiskError:
        """Makes the store unusable: every later change is refused with this error."""
        self._failure = FatalDiskError(f"{self._directory}: {action} failed: {error}")
        return self._failure
