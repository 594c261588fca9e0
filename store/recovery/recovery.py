"""Recovery: from the files of a replica to a log that may be used.

All entries behind the newest checkpoint are read. A *hole* is a place of the log without an intact
entry (:mod:`store.log.log_reader`). Its position says what it means:

* Behind the durable position: a torn tail, which was never confirmed. It is cut.
* Below it, among entries that are known to be committed: :attr:`Recovery.hole` is set, and recovery
  waits there. Peers may read the entries before the hole. An entry of a peer fills it
  (:meth:`Recovery.fill`), and recovery goes on behind it. If that entry has expired at all peers,
  the log ends before it (:meth:`Recovery.give_up`).
* Below it, behind the entries that are known to be committed: a lost suffix. The directory first
  gets a new incarnation (:mod:`store.recovery.lost_suffix`), and then the log ends there. The
  leader sends what is missing.

Entries up to the newest checkpoint are not read. Holes there are found and repaired while the node
runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from store.errors import DamagedError, FatalDiskError, StoreError
from store.io.atomic_file import list_finished, replace_file
from store.io.filesystem import Bytes, FileSystem, Lock
from store.log.commit_log import CommitLog
from store.log.entry import Entry, check_chain, padding
from store.log.entry_index import EntryIndex
from store.log.entry_reader import read_entries
from store.log.layout import next_position, segment_start
from store.log.log_reader import Hole, HoleReason
from store.log.repair_note import finish, overwrite_noted, overwritten_end
from store.recovery.log_scan import (
    LogScan,
    RecoveredReplica,
    adopt_segments,
    missing_segments,
    scan,
    start_of_scan,
)
from store.recovery.lost_suffix import (
    cut_entries,
    displaced,
    lost_suffix,
    misplaced,
    restore_length,
    short_segment,
    unreadable,
)
from store.recovery.opening import StoreConfig, begin_incarnation, bring_forward, lock_directory
from store.recovery.snapshot_install import REBUILD_NAME, raise_vote_floor
from store.recovery.state_files import OpenStateFiles
from store.recovery.torn_tail import clean_tail
from store.state.hard_state import DurableMark


@dataclass(slots=True)
class OpenParts:
    """The open files of a replica's directory. They agree with each other."""

    lock: Lock
    log: CommitLog
    index: EntryIndex
    state: OpenStateFiles
    last_term: int
    recovered: RecoveredReplica


@dataclass(frozen=True, slots=True)
class UnappliedHole:
    """Entry ``index`` is committed but damaged, and the entries before it are intact.

    Entries up to ``last_index`` are committed. ``tied``: the chain CRC before the entry is known.
    It is unknown for the first entry retained.
    """

    index: int
    last_index: int
    tied: bool
    error: DamagedError


class Recovery:
    """Of one replica; see the module. One thread at a time. It ends with :meth:`finish` or
    :meth:`close`."""

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        config: StoreConfig,
        go_on: Callable[[], None] = lambda: None,
    ) -> None:
        """Opens the directory, or creates it, and reads up to the first hole.

        ``go_on`` is called often while the log is read. What it raises ends the recovery, and
        closes all files. Raises the errors of :meth:`store.replica.ReplicaStore.open`.
        """
        self.hole: UnappliedHole | None = None
        """The first hole among the committed entries behind the checkpoint."""
        self.lost: list[DamagedError] = []
        """Missing segment files, checkpoints that cannot be used, why the log lost its end."""
        self._fs = fs
        self._directory = directory
        self._config = config
        self._lost = False
        self._go_on = go_on
        with ExitStack() as unless_read, _fatal_disk_errors(directory):
            lock, self._incarnation = lock_directory(fs, directory, config)
            self._lock = lock
            unless_read.callback(lock.release)
            self._state = state = OpenStateFiles(fs, directory, config.owner)
            unless_read.callback(state.close)
            self.lost += state.checkpoints.damage
            self._log = self._adopted_log()
            unless_read.callback(self._log.close)
            self._index = EntryIndex(
                fs,
                f"{directory}/index",
                config.index_rows_per_file,
                self._log,
                first_index=state.mark.first_index,
                first_position=state.mark.first_position,
                flushed_end=state.applied_index + 1,
            )
            unless_read.callback(self._index.close)
            self._durable_position = state.durable_position
            self._commit_index = state.commit_index
            self._find_lost_segments()
            self._found = start_of_scan(state.checkpoint, self._index, state.mark)
            self._read_on()
            unless_read.pop_all()

    def close(self) -> None:
        """Closes all files, and gives up the lock."""
        self._log.close()
        self._index.close()
        self._state.close()
        self._lock.release()

    def _adopted_log(self) -> CommitLog:
        fs, config = self._fs, self._config
        directory = f"{self._directory}/commitlog"
        sizes = config.segment_size, config.min_free_bytes
        log = CommitLog(fs, directory, *sizes, direct=config.direct)
        log.first_position = self._state.mark.first_position
        for segment in adopt_segments(log, list_finished(fs, directory)):
            log.remove_segment(segment)
        return log

    # --- holes

    @property
    def first_index(self) -> int:
        """The first entry retained."""
        return self._index.first_index

    def read(self, first_index: int, last_index: int, bytes_max: int) -> list[Entry]:
        """Committed entries before the hole, for a peer; an empty list if there are none."""
        last_index = min(last_index, self._found.last_index)
        with suppress(StoreError):
            return read_entries(self._log, self._index, first_index, last_index, bytes_max)
        return []

    def fill(self, entries: Sequence[Entry], go_on: Callable[[], None] = lambda: None) -> None:
        """Writes a peer's committed entries into the hole, and reads on. ``go_on`` is as above.

        Raises :class:`~store.errors.StoreError` if an entry does not fit,
        :class:`~store.errors.DamagedError` if the log cannot be used at all, and ``OSError``. The
        entries before such an entry stay written.
        """
        self._go_on = go_on
        for entry in entries:
            if self.hole is not None and entry.index >= self.hole.index:
                self._put(entry, self.hole)
                self._read_on()

    def give_up(self) -> None:
        """Ends the log before the hole, because its entry has expired at all peers.

        The directory gets a new incarnation, and the last known entry becomes its vote floor: the
        node does not vote until it holds that entry again. After a crash in between, the hole is
        still there.
        """
        if self.hole is None:
            return
        self._lose_suffix(self.hole.error)
        known = max(self._commit_index, self._state.mark.index)
        raise_vote_floor(self._fs, self._directory, known)
        if self._found.last_index >= self._state.applied_index:
            self._end_log()
        else:
            self._empty_log()
        self.hole = None

    def _put(self, entry: Entry, hole: UnappliedHole) -> None:
        found, size = self._found, self._log.segment_size
        if entry.index != hole.index:
            raise StoreError(f"entry {hole.index} comes first")
        if found.chain_crc is not None:
            check_chain(entry, found.chain_crc)
        position = next_position(found.end, entry.size, size)
        if entry.position != position:
            raise StoreError(f"it belongs at {position}, and was at {entry.position}")
        segment = self._log.segments.get(segment_start(position, size))
        if segment is None:
            raise StoreError(f"no segment had anything at {position}")
        pieces: list[tuple[int, Bytes]] = []
        if position != found.end:
            pieces.append((found.end, padding(position - found.end)))
        intact = self._is_on_disk(entry)
        if not intact:
            pieces.append((position, entry.data))
        places = [(self._fs, self._directory, size, [piece]) for piece in pieces]
        if (entry.end >= self._durable_position and not intact) or any(
            overwritten_end(*place) > self._durable_position for place in places
        ):
            # Entries behind the last one known to be durable may be lost together with it.
            self._lose_suffix(hole.error)
        for place in places:
            overwrite_noted(*place)
        self._log.sync_directory()
        segment.adopt()

    def _is_on_disk(self, entry: Entry) -> bool:
        return self._log.reader.read(entry.position, entry.size).data == entry.data

    # --- a log that ends too early

    def _lose_suffix(self, error: DamagedError) -> None:
        """Durably gives the directory a new incarnation, once: it may have lost confirmed entries.

        Raises ``error`` if no other replica could send them, or if the node has no incarnation.
        """
        if self._config.alone or not self._config.incarnation:
            raise error
        if not self._lost:
            self._incarnation = begin_incarnation(
                self._fs, self._directory, self._config, self._state.evidence_file
            )
            self._lost = True
            self.lost.append(error)

    def _end_log(self) -> None:
        """Ends the log with the last intact entry."""
        self._commit_index = min(self._commit_index, self._found.last_index)
        self._durable_position = self._found.end
        self._save_mark()

    def _empty_log(self) -> None:
        """Empties the log: without its index, no row says where the entry behind the hole lies."""
        replace_file(self._fs, f"{self._directory}/state", REBUILD_NAME, b"")
        self._state.forget_log()
        self._commit_index = -1
        self._durable_position = self._log.first_position = 0
        self._index.first_index = self._index.first_position = 0
        self._index.forget_files()
        self._found = LogScan(-1, -1, 0, 0)

    def _save_mark(self) -> None:
        """Saves the durable mark at the last entry that was found."""
        found = self._found
        named = (found.last_index, found.end, found.chain_crc or 0)
        mark = self._state.mark
        begins = (mark.first_index, mark.first_position)
        self._state.save_mark(DurableMark(*named, self._commit_index, *begins))

    # --- reading

    def _find_lost_segments(self) -> None:
        """Creates an empty file for a missing segment; its entries are repaired one by one."""
        log, durable_position = self._log, self._durable_position
        missing = missing_segments(log, durable_position)
        for segment in missing:
            self.lost.append(DamagedError(segment.path, 0, "the segment file is missing"))
            if self._config.alone:
                raise self.lost[-1]
            segment.create()
            segment.adopt()
            log.segments[segment.start] = segment
        if missing:
            log.sync_directory()
        short = short_segment(log, durable_position)
        if short is not None:
            what = (
                f"the file ends here, though all below position {durable_position} was durable, "
                "and what came behind may be lost with it"
            )
            self._lose_suffix(DamagedError(short.path, short.zeroed_end, what))
            restore_length(short, durable_position)

    def _read_on(self) -> None:
        """Reads up to the next hole, and acts on what it means."""
        log, found = self._log, self._found
        hole = scan(log, found, self._state.mark, self._go_on)
        self._index.append(found.rows)
        found.rows.clear()
        log.end = log.synced_end = found.end
        self.hole = None
        if found.end >= self._durable_position:
            lost = self._lost_behind(hole)
            if lost is not None:
                self._lose_suffix(lost)
            return
        index = found.last_index + 1
        damage = DamagedError(
            *log.locate(hole.position),
            f"{hole}; all below position {self._durable_position} was durable, "
            f"and entry {index} is not whole",
        )
        committed = index <= self._commit_index
        if not committed or displaced(log, hole.position, self._durable_position):
            self._lose_suffix(damage)
        if committed:
            tied = found.chain_crc is not None
            self.hole = UnappliedHole(index, self._commit_index, tied, damage)
        else:
            self._end_log()

    def _lost_behind(self, hole: Hole) -> DamagedError | None:
        """The damage, if a hole behind the durable position is more than a torn tail."""
        if hole.reason is HoleReason.EIO:
            return unreadable(self._log, hole.position)
        return misplaced(self._log, hole.position)

    # --- the end

    def finish(self) -> OpenParts:
        """Brings the directory to a clean state. There must be no hole.

        Raises the errors of :meth:`store.replica.ReplicaStore.open`, and closes all files then.
        """
        with ExitStack() as unless_finished, _fatal_disk_errors(self._directory):
            unless_finished.callback(self.close)
            parts = self._finish()
            unless_finished.pop_all()
        return parts

    def _finish(self) -> OpenParts:
        log, index, found = self._log, self._index, self._found
        state, checkpoint = self._state, self._state.checkpoint
        if found.last_term > state.hard_state.term:
            what = f"term {state.hard_state.term} is below the log's last, {found.last_term}"
            raise DamagedError(state.vote_file.path, 0, what)
        torn = clean_tail(log, found.end, self._durable_position)
        finish(self._fs, self._directory, log)
        if checkpoint is not None:
            # The files may have been rebuilt: what a checkpoint covers must be on disk.
            index.flush(checkpoint.index + 1)
        log.start_segment()
        if checkpoint is not None:
            if index.row(checkpoint.index).end != checkpoint.end_position:
                path, byte = index.locate(checkpoint.index)
                raise DamagedError(path, byte, "log and checkpoint disagree on an entry's end")
            if found.last_index == checkpoint.index:
                lost = lost_suffix(log, index, checkpoint)
                if lost is not None:
                    self._lose_suffix(lost)
        self._save_mark()
        bring_forward(self._fs, self._directory)
        last_term = max(found.last_term, 0)
        return OpenParts(self._lock, log, index, state, last_term, self._recovered(torn))

    def _recovered(self, torn: int) -> RecoveredReplica:
        found, state = self._found, self._state
        checkpoint, mark = state.checkpoint, state.mark
        applied = -1 if checkpoint is None else checkpoint.index
        while found.tail and found.tail[0].index <= applied:
            found.drop_oldest()
        term_starts = [] if checkpoint is None else list(checkpoint.term_starts)
        term_starts += [start for start in found.term_starts if start[1] > applied]
        return RecoveredReplica(
            term=state.hard_state.term,
            vote=state.hard_state.vote,
            first_index=mark.first_index,
            last_index=mark.index,
            end_position=mark.position,
            last_chain_crc=mark.chain_crc,
            term_starts=term_starts,
            commit_index=mark.commit_index,
            checkpoint=checkpoint,
            torn_bytes_cut=torn,
            tail=list(found.tail),
            tail_base=found.tail_base,
            lost=self.lost,
            incarnation=self._incarnation,
            configurations=[entry for entry in found.configurations if entry.index > applied],
            held=state.evidence_file.held,
            cut_entries=cut_entries(self._log, self._index, found.last_index),
        )


@contextmanager
def _fatal_disk_errors(directory: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FatalDiskError(f"{directory}: cannot be opened: {error}") from error
