"""The refill of a replica whose log ends before the logs of its peers begin.

A peer's newest checkpoint and the entries up to it are received into a directory of their own. The
replica goes on working meanwhile::

    <directory>/refill/plan           what is being received: a slot of store/io/two_slot_file.py
    <directory>/refill/checkpoint     the checkpoint file of the peer, as it is
    <directory>/refill/commitlog/...  segments, with the entries as they lie in the peer's log
    <directory>/refill/complete       a slot like the plan: everything is there, and durable

What was received survives a crash, and receiving goes on behind it. If ``complete`` exists when the
replica is opened, the refill replaces the replica's log, mark and checkpoint. Each step of that can
be repeated, and ``complete`` is removed last. So a crash in between leads to the same result. Term
and vote stay. Derived files are removed; ``state/rebuild`` says that they must be rebuilt from the
log (:mod:`store.index_rebuild`). A refill that is no longer needed is removed.

A plan is the MessagePack array ``[first index, first position, index of the checkpoint]``. The
record ``complete`` adds the *vote floor*: the last entry that the replica held before. The replica
may have confirmed entries up to there that the refill lacks. So it must not vote until it holds
that entry again (``state/floor``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgpack

from store.errors import (
    CorruptEntryError,
    DamagedError,
    DiskFullError,
    StoreError,
    UnreadableError,
)
from store.io.atomic_file import read_checked_file, replace_file
from store.io.filesystem import FileSystem
from store.io.two_slot_file import SLOT_COUNT, SLOT_SIZE, TwoSlotFile, decode_slot, encode_slot
from store.log.commit_log import CommitLog
from store.log.entry import Entry, check_chain
from store.recovery.log_scan import LogScan, adopt_segments, scan
from store.recovery.torn_tail import clean_tail
from store.state.checkpoint import NAME_PREFIX, Checkpoint, decode_checkpoint
from store.state.hard_state import MARK_NAME, VOTE_NAME, DurableMark, HardState

REFILL_NAME = "refill"
PLAN_NAME = "plan"
COMPLETE_NAME = "complete"
CHECKPOINT_NAME = "checkpoint"
FLOOR_NAME = "floor"
REBUILD_NAME = "rebuild"
SYNC_BYTES = 4 << 20
REWRITTEN_BYTES = 32 << 20
"""More than a failed sync may have left in the page cache only: the bytes between two syncs, and
one entry (see store/recovery/torn_tail.py)."""
COMPLETION_BYTES = 64 << 10
"""More than a file of one slot and its name take on any file system."""

DERIVED = ("consumequeue", "keyindex")


class InstallPlan(NamedTuple):
    """A log that begins with ``first_index`` at ``first_position`` and ends at a checkpoint."""

    first_index: int
    first_position: int
    checkpoint_index: int


class SnapshotInstall:
    """One refill that is being received. One thread at a time."""

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        plan: InstallPlan,
        checkpoint: Checkpoint,
        log: CommitLog,
    ) -> None:
        self._fs = fs
        self._directory = f"{directory}/{REFILL_NAME}"
        self._log = log
        self._chain_crc: int | None = 0 if plan.first_index == 0 else None
        self._last_term = 0
        self.plan = plan
        self.checkpoint = checkpoint
        self.next_index = plan.first_index

    @staticmethod
    def begin(
        fs: FileSystem,
        directory: str,
        plan: InstallPlan,
        checkpoint_data: bytes,
        term_max: int,
        *,
        segment_size: int,
        min_free_bytes: int,
    ) -> SnapshotInstall:
        """Drops what was received before, and begins again.

        Raises :class:`~store.errors.DamagedError` if the checkpoint is damaged, not the one of the
        plan, or of a term above ``term_max``, the term of the leader. Raises
        :class:`~store.errors.DiskFullError` if the disk has no room for all of the refill. So it
        does not fetch for hours what cannot be completed.
        """
        refill = f"{directory}/{REFILL_NAME}"
        path = f"{refill}/{CHECKPOINT_NAME}"
        checkpoint = decode_checkpoint(checkpoint_data, path)
        if checkpoint.index != plan.checkpoint_index or checkpoint.index < plan.first_index - 1:
            raise DamagedError(path, 16, f"not the checkpoint of the plan {plan}")
        if checkpoint.term > term_max:
            raise DamagedError(path, 16, f"of term {checkpoint.term}, when term {term_max} is led")
        forget(fs, directory)
        log_bytes = checkpoint.end_position - plan.first_position
        _check_room(fs, directory, log_bytes + len(checkpoint_data), min_free_bytes)
        fs.make_directories(f"{refill}/commitlog")
        replace_file(fs, refill, CHECKPOINT_NAME, checkpoint_data)
        replace_file(fs, refill, PLAN_NAME, encode_slot(1, msgpack.packb(plan)))
        log = CommitLog(fs, f"{refill}/commitlog", segment_size, min_free_bytes)
        log.first_position = log.end = log.synced_end = plan.first_position
        return SnapshotInstall(fs, directory, plan, checkpoint, log)

    @staticmethod
    def resume(
        fs: FileSystem, directory: str, *, segment_size: int, min_free_bytes: int
    ) -> SnapshotInstall | None:
        """The refill that an earlier process began, or ``None`` if there is nothing of use."""
        refill = f"{directory}/{REFILL_NAME}"
        if not fs.exists(f"{refill}/{PLAN_NAME}"):
            return None
        try:
            plan = InstallPlan(*_read_record(fs, f"{refill}/{PLAN_NAME}", 3))
            path = f"{refill}/{CHECKPOINT_NAME}"
            checkpoint = decode_checkpoint(read_checked_file(fs, path), path)
            log = CommitLog(fs, f"{refill}/commitlog", segment_size, min_free_bytes)
            log.first_position = plan.first_position
            adopt_segments(log, fs.list_directory(log.directory))
            resumed = SnapshotInstall(fs, directory, plan, checkpoint, log)
            found = LogScan(plan.first_index - 1, -1, plan.first_position, resumed._chain_crc)
            found.commit_index = checkpoint.index  # so the scan keeps few entries in memory
            scan(log, found, DurableMark())
            clean_tail(log, found.end, max(plan.first_position, found.end - REWRITTEN_BYTES))
        except UnreadableError:
            raise  # told, not passed over: the disk fails
        except (DamagedError, FileNotFoundError):
            return None
        resumed.next_index = found.last_index + 1
        resumed._chain_crc = found.chain_crc
        resumed._last_term = max(found.last_term, 0)
        return resumed

    @property
    def ended(self) -> bool:
        """Whether all entries up to the checkpoint were received."""
        return self.next_index > self.plan.checkpoint_index

    @property
    def may_complete(self) -> bool:
        """Whether the disk seems to have room for :meth:`complete`."""
        return self._fs.free_bytes(self._directory) >= COMPLETION_BYTES

    def append(self, entries: Sequence[Entry]) -> None:
        """Adds the next entries. They are durable after :meth:`complete` at the latest.

        Raises :class:`~store.errors.StoreError` if they do not follow, and
        :class:`~store.errors.DiskFullError`; nothing is added then.
        """
        index, chain, term = self.next_index, self._chain_crc, self._last_term
        for entry in entries:
            if entry.index != index or entry.term < term:
                raise StoreError(f"entry {entry.index} of term {entry.term} is not entry {index}")
            if chain is not None:
                try:
                    check_chain(entry, chain)
                except CorruptEntryError as error:
                    raise StoreError(f"entry {index} does not follow: {error}") from error
            index, chain, term = index + 1, entry.chain_crc, entry.term
        if index > self.plan.checkpoint_index + 1:
            raise StoreError(f"entries up to {index - 1} go beyond the plan {self.plan}")
        end = (self.checkpoint.chain_crc, self.checkpoint.term)
        if index == self.plan.checkpoint_index + 1 and (chain, term) != end:
            raise StoreError(f"the entries do not lead to the checkpoint of {index - 1}")
        size = sum(entry.size for entry in entries)
        _check_room(self._fs, self._directory, size, self._log.min_free_bytes)
        self._log.append(entries)
        if self._log.end - self._log.synced_end >= SYNC_BYTES:
            self._log.sync()
        self.next_index, self._chain_crc, self._last_term = index, chain, term

    def complete(self, floor: int) -> None:
        """Makes the refill durable, for the next :func:`install`. ``floor``: see the module."""
        if not self.ended:
            raise StoreError(f"the refill ends at {self.next_index - 1}, before {self.plan}")
        self._log.sync()
        self.close()
        record = encode_slot(1, msgpack.packb((*self.plan, floor)))
        replace_file(self._fs, self._directory, COMPLETE_NAME, record)

    def close(self) -> None:
        self._log.close()


def install(fs: FileSystem, directory: str) -> bool:
    """Makes a complete refill the replica's data; returns whether there was one.

    Called with the directory locked, once it is known to be this node's, and before anything else
    of it is read. Raises :class:`~store.errors.DamagedError` if the refill itself is damaged, and
    drops it then.
    """
    refill, state = f"{directory}/{REFILL_NAME}", f"{directory}/state"
    if not fs.exists(f"{refill}/{COMPLETE_NAME}"):
        return False
    # A process may have been killed before it synced this name. It is visible then, but not on the
    # disk. If it were lost in the middle of the steps below, half of them would stay.
    fs.sync_directory(refill)
    path = f"{refill}/{CHECKPOINT_NAME}"
    try:
        *planned, floor = _read_record(fs, f"{refill}/{COMPLETE_NAME}", 4)
        data = read_checked_file(fs, path)
        checkpoint = decode_checkpoint(data, path)
    except DamagedError:
        forget(fs, directory)
        raise
    plan = InstallPlan(*planned)
    raise_term(fs, f"{state}/{VOTE_NAME}", checkpoint.term)
    if floor > checkpoint.index:
        raise_vote_floor(fs, directory, floor)
    replace_file(fs, state, REBUILD_NAME, b"")
    mark = DurableMark(
        checkpoint.index,
        checkpoint.end_position,
        checkpoint.chain_crc,
        checkpoint.index,
        plan.first_index,
        plan.first_position,
    )
    replace_file(fs, state, MARK_NAME, encode_slot(1, mark.pack()) * SLOT_COUNT)
    _replace_segments(fs, f"{refill}/commitlog", f"{directory}/commitlog")
    for name in fs.list_directory(f"{directory}/index"):
        fs.remove(f"{directory}/index/{name}")
    fs.sync_directory(f"{directory}/index")
    for name in DERIVED:
        fs.remove_tree(f"{directory}/{name}")
    fs.sync_directory(directory)
    for name in fs.list_directory(state):
        if name.startswith(NAME_PREFIX):
            fs.remove(f"{state}/{name}")
    replace_file(fs, state, f"{NAME_PREFIX}{checkpoint.index:020d}", data)
    forget(fs, directory)
    return True


def read_vote_floor(fs: FileSystem, directory: str) -> int:
    """The entry that the replica must hold before it may vote again; -1 for none."""
    path = f"{directory}/state/{FLOOR_NAME}"
    return _read_record(fs, path, 1)[0] if fs.exists(path) else -1


def raise_vote_floor(fs: FileSystem, directory: str, index: int) -> None:
    """Durably notes that the replica must hold this entry before it may vote again."""
    if index > read_vote_floor(fs, directory):
        record = encode_slot(1, msgpack.packb([index]))
        replace_file(fs, f"{directory}/state", FLOOR_NAME, record)


def clear_vote_floor(fs: FileSystem, directory: str) -> None:
    """Removes the vote floor: the replica durably holds again what it held before."""
    _remove(fs, f"{directory}/state", FLOOR_NAME)


def _replace_segments(fs: FileSystem, source: str, target: str) -> None:
    """Replaces by links, not by renames: the source stays complete until the installation ends."""
    for name in fs.list_directory(target):
        fs.remove(f"{target}/{name}")
    for name in fs.list_directory(source):
        fs.link(f"{source}/{name}", f"{target}/{name}")
    fs.sync_directory(target)


def raise_term(fs: FileSystem, path: str, term: int) -> None:
    """Durably raises the term of ``state/vote``: no entry of the log may have a later term.

    The replica has not voted in the later term, so no vote is lost.
    """
    vote_file = TwoSlotFile.open(fs, path)
    try:
        if HardState.unpack(vote_file.payload, path).term < term:
            vote_file.save(HardState(term, "").pack())
    finally:
        vote_file.close()


def _check_room(fs: FileSystem, directory: str, size: int, min_free_bytes: int) -> None:
    """Raises :class:`~store.errors.DiskFullError` if ``size`` bytes would take what must stay free:
    the replica's checkpoints need it, and without them it never expires anything of its own log.
    """
    free = fs.free_bytes(directory)
    if free < size + min_free_bytes:
        raise DiskFullError(
            f"{directory}: a refill keeps the old log until it is complete, and needs {size} bytes "
            f"more; {free} bytes are free, and {min_free_bytes} of them must stay free"
        )


def is_begun(fs: FileSystem, directory: str) -> bool:
    """Whether there is a refill, or what is left of one that was being removed."""
    return fs.exists(f"{directory}/{REFILL_NAME}")


def forget(fs: FileSystem, directory: str) -> None:
    """Removes a refill. After a crash in between, no part of it counts as a complete one."""
    refill = f"{directory}/{REFILL_NAME}"
    if not fs.exists(refill):
        return
    _remove(fs, refill, PLAN_NAME)
    _remove(fs, refill, COMPLETE_NAME)
    fs.remove_tree(refill)
    fs.sync_directory(directory)


def _remove(fs: FileSystem, directory: str, name: str) -> None:
    if fs.exists(f"{directory}/{name}"):
        fs.remove(f"{directory}/{name}")
        fs.sync_directory(directory)


def _read_record(fs: FileSystem, path: str, length: int) -> list[int]:
    slot = decode_slot(read_checked_file(fs, path)[:SLOT_SIZE])
    if slot is None:
        raise DamagedError(path, 0, "the record is not whole")
    record = msgpack.unpackb(slot[1])
    if not isinstance(record, list) or [type(value) for value in record] != [int] * length:
        raise DamagedError(path, 0, f"the record has unexpected fields: {record!r}")
    return record
