"""The check of one replica's part of a range, or of several parts with equal bytes."""

from __future__ import annotations

from collections.abc import Sequence

from store.errors import CorruptBatchError
from store.log.entry import Entry, EntryKind
from store.log.log_reader import Window
from store.message.batch import decode_batch
from store.verify.files.audit_files import AuditFiles
from store.verify.files.read_buffers import Buffers
from store.verify.findings import FindingKind, FindingLog
from store.verify.index.consume_queue_check import open_queue_check
from store.verify.index.entry_index_check import EntryIndexCheck, index_row
from store.verify.index.key_index_digests import KeyDigests
from store.verify.log.batch_check import BatchMismatchError, check_batch, checked_columns
from store.verify.log.batch_columns import BatchColumns, TopicNumbers, plain_columns, read_columns
from store.verify.log.log_commands import (
    EntryCommands,
    FileCommand,
    QueueTrim,
    StatedProof,
    commands_of,
)
from store.verify.log.log_walk import DamagedLogWalk, LogWalk
from store.verify.log.queue_row_runs import QueueRowRuns
from store.verify.named_entries_check import NamedEntriesCheck
from store.verify.plan.ranges import (
    Border,
    ProvedCheckpoint,
    RangeKeys,
    RangeState,
    ReplicaPlan,
    ReplicaRange,
)
from store.verify.replay.state_check import SegmentTimes
from store.verify.replay.state_proof_check import proved_checkpoints
from store.verify.replica_report import ReplicaReport
from store.verify.state.broker_state import COUNTED_TOPICS, BrokerEffects

LEADER_FAULT = "the entry is as a leader made it: report it; all replicas should have the same"
FEW_ENTRIES = 8
"""A part of a window is not halved below so many entries; their batches are checked one by one."""

ROWS_AT_ONCE = 1 << 16
"""Queue rows that are collected before their CRCs are computed."""


class ReplicaCheck:
    """Takes the entries of a range in order, and derives from them what other files must hold."""

    def __init__(
        self,
        fs: AuditFiles,
        plan: ReplicaPlan,
        border: Border,
        *,
        last_index: int | None,
        end_position: int | None,
        buffers: Buffers,
    ) -> None:
        directory, identity = plan.directory, plan.identity
        self._report = ReplicaReport(
            directory, identity.group, identity.node, identity.segment_size
        )
        self._log = FindingLog(self._report.name)
        self._report.findings = self._log.findings
        # Findings about the small files themselves belong to the plan.
        self._state = state = plan.state
        self._border, self._last_index = border, last_index
        self._fs, self._buffers = fs, buffers
        self._walk: LogWalk = DamagedLogWalk(
            fs, directory, state, self._log, border=border, last_index=last_index, buffers=buffers
        )
        self._is_covered = last_index is not None and last_index <= state.checkpoint_index
        """Whether the newest checkpoint includes the range. A range ends where a checkpoint does.
        """
        indexed = 0 if state.rebuilds else state.checkpoint_index + 1
        self._index = EntryIndexCheck(fs, directory, indexed, self._log)
        self._queues = open_queue_check(fs, state, directory, self._log)
        covered_end = state.covered_end
        self._keys = KeyDigests(
            fs,
            directory,
            range_position=border.position,
            range_end=covered_end if end_position is None else min(covered_end, end_position),
            end_position=covered_end,
        )
        self._named = NamedEntriesCheck(state, self._log)
        self._topics = TopicNumbers()
        self._runs = QueueRowRuns(self._topics)
        self._term_starts: list[tuple[int, int]] = []
        self._last_term = max(border.term, 0)
        self._times = SegmentTimes(identity.segment_size)
        self._configuration: bytes | None = None
        self._effects = BrokerEffects()
        self._proofs: list[ProvedCheckpoint] = []
        self.counts: dict[tuple[str, int], int] = {}

    def run(self) -> None:
        """Checks this replica alone. Damage becomes findings."""
        self._walk_with([self], CorruptBatchError, BatchMismatchError)

    def run_shared(self, followers: Sequence[ReplicaCheck], last_index: int) -> None:
        """Checks replicas whose logs have equal bytes and no damage. Derived files may differ.

        Raises :class:`~store.errors.StoreError` or ``OSError`` for anything wrong in the log. The
        findings of this check are of no use then.
        """
        everyone = [self, *followers]
        if self._has_keys:
            for follower in followers:
                follower._keys.follow(self._keys)
        self._walk = LogWalk(
            self._fs,
            [check._report.directory for check in everyone],
            self._report.segment_size,
            border=self._border,
            last_index=last_index,
            buffers=self._buffers,
        )
        self._walk_with(everyone)
        for check in everyone:
            check._walk = self._walk
            check._term_starts, check._last_term = self._term_starts, self._last_term
            check._times, check._configuration = self._times, self._configuration
            check._effects = self._effects
            check._report.messages, check.counts = self._report.messages, self.counts

    def end(self, place: int) -> tuple[ReplicaReport, ReplicaRange]:
        """The results, once all entries were taken. ``place``: that of the replica in its group."""
        self._index.finish()
        walk = self._walk
        if self._is_covered and not walk.lost:
            self._named.check_terms(
                self._term_starts,
                walk.first_index,
                walk.last_index,
                before_is_known=self._border.term >= 0,
            )
        queues = self._queues.end_range(covered=self._is_covered)
        if self._has_keys:
            keys = self._keys.end_range()
        else:  # files of earlier ranges may lack what this range says to have expired
            keys = RangeKeys(expired_position=self._keys.expired_position)
        report = self._report
        report.first_index, report.last_index = walk.first_index, walk.last_index
        report.commit_index = self._state.commit_index
        report.end_position = walk.end_position
        report.last_term = self._last_term
        report.chains, report.positions, report.ends = walk.chains, walk.positions, walk.ends
        state = None
        if self._is_covered:
            times = self._times
            state = RangeState(
                times.found(),
                times.last_ms,
                self._configuration,
                bool(walk.lost),
                self._effects,
            )
        return report, ReplicaRange(
            place,
            report.last_index,
            report.last_term,
            report.end_position,
            report.messages,
            queues,
            keys,
            state,
            tuple(self._proofs),
        )

    @property
    def _has_keys(self) -> bool:
        """Whether files of the key index must hold the rows of the range."""
        return self._is_covered and self._state.machine is not None

    # --- entries

    def _walk_with(self, everyone: Sequence[ReplicaCheck], *told: type[Exception]) -> None:
        """Takes all entries. Errors of the types ``told`` become findings, others are raised."""
        lost = 0
        for window in self._walk.windows():
            if len(self._walk.lost) != lost:
                lost = len(self._walk.lost)
                self._lose(everyone)
            self._take_headers(window, everyone)
            data = [entry for entry in window.entries if entry.kind is EntryKind.DATA]
            if data:
                self._take_data(window, data, everyone, told)
        self._take_runs(everyone)
        if len(self._walk.lost) != lost:
            self._lose(everyone)

    def _take_headers(self, window: Window, everyone: Sequence[ReplicaCheck]) -> None:
        entries = window.entries
        first, rows = entries[0].index, b"".join(map(index_row, entries))
        for entry in entries:
            if entry.term != self._last_term:
                self._term_starts.append((entry.term, entry.index))
                self._last_term = entry.term
            if entry.kind is EntryKind.CONFIGURATION:
                self._configuration = bytes(entry.body)
        for check in everyone:
            check._index.take(first, rows)
            for index in check._named.indexes:
                if 0 <= index - first < len(entries):
                    check._named.check(entries[index - first])

    def _take_data(
        self,
        window: Window,
        data: Sequence[Entry],
        everyone: Sequence[ReplicaCheck],
        told: tuple[type[Exception], ...],
    ) -> None:
        """Takes data entries of a window: together, or in halves if that proves nothing of them."""
        if self._take_together(window, data, everyone):
            return
        half = len(data) // 2
        if half >= FEW_ENTRIES:
            self._take_data(window, data[:half], everyone, told)
            self._take_data(window, data[half:], everyone, told)
            return
        for entry in data:
            try:
                self._take_alone(entry, everyone)
            except told as error:
                self._tell_batch(entry, error)

    def _take_together(
        self, window: Window, data: Sequence[Entry], everyone: Sequence[ReplicaCheck]
    ) -> bool:
        """Takes data entries of a window, if it can be proved that all of them are right."""
        columns = read_columns(window.data, window.position, data, self._topics)
        try:
            if columns is None and len(data) < 2 * FEW_ENTRIES:
                columns = checked_columns(data, self._topics)
            if columns is None:
                return False
            commands = commands_of(columns, self._topics)
        except (CorruptBatchError, BatchMismatchError):
            return False
        self._take_columns(columns, commands, everyone)
        return True

    def _take_alone(self, entry: Entry, everyone: Sequence[ReplicaCheck]) -> None:
        """Takes one data entry.

        Raises :class:`BatchMismatchError` and :class:`~store.errors.CorruptBatchError`.
        """
        batch = decode_batch(entry.body)
        columns = plain_columns([entry], [batch], self._topics)
        self._times.take(entry.position, columns.last_ms)
        # The rows of the entry went into the files, whatever its records say.
        self._take_columns(columns, commands_of(columns, self._topics), everyone)
        check_batch(entry, batch)

    def _take_columns(
        self,
        columns: BatchColumns,
        commands: dict[int, EntryCommands],
        everyone: Sequence[ReplicaCheck],
    ) -> None:
        """Takes what batches say about derived files and about the broker's state."""
        begun = 0
        counting = columns.entries_with(self._topics.numbers_known(COUNTED_TOPICS))
        for number in sorted(counting.union(commands)):
            entry = columns.entries[number]
            said = commands.get(number, EntryCommands([], []))
            batch = decode_batch(entry.body) if number in counting else None
            self._effects.take(batch, said.all, entry.position)
            if said.of_files:
                self._runs.add(columns, begun, number + 1)
                begun = number + 1
                self._take_runs(everyone)
                for check in everyone:
                    check._obey(said.of_files, columns, number)
        self._runs.add(columns, begun)
        if self._runs.count >= ROWS_AT_ONCE:
            self._take_runs(everyone)
        self._times.take(columns.entries[0].position, columns.last_ms)
        places = [(entry.position, entry.index) for entry in columns.entries]
        for check in everyone:
            if check._is_covered:
                check._keys.take(columns.key_rows, places)
        self._report.messages += len(columns.rows)
        for key, messages in columns.count_messages(self._topics):
            self.counts[key] = self.counts.get(key, 0) + messages

    def _take_runs(self, everyone: Sequence[ReplicaCheck]) -> None:
        """Hands over the queue rows that were collected."""
        runs = self._runs.take()
        for check in everyone:
            check._queues.take(runs, covered=check._is_covered)

    def _lose(self, everyone: Sequence[ReplicaCheck]) -> None:
        """Entries could not be read: where queues go on is unknown until their next message."""
        self._take_runs(everyone)
        self._queues.lose()

    def _obey(self, commands: Sequence[FileCommand], columns: BatchColumns, number: int) -> None:
        """Applies commands about files, of the entry of that number."""
        for command in commands:
            if isinstance(command, StatedProof):
                self._proofs += proved_checkpoints(
                    command,
                    columns.entries[number],
                    self._state,
                    has_messages=bool((columns.runs.entries == number).any()),
                )
            elif isinstance(command, QueueTrim):
                self._queues.trim(command, covered=self._is_covered)
            elif isinstance(command, str):
                self._queues.empty(command, covered=self._is_covered)
            else:
                self._keys.expired_position = max(self._keys.expired_position, command)

    def _tell_batch(self, entry: Entry, error: Exception) -> None:
        byte, expected, found = 0, "a batch", str(error)
        if isinstance(error, BatchMismatchError):
            byte, expected, found = error.byte, f"{error.what} {error.expected}", str(error.found)
        else:
            self._lose([self])
        path, start = self._walk.segment_path(entry.position)
        kind, at = FindingKind.BATCH, start + byte
        self._log.add(kind, path, at, expected, found, LEADER_FAULT, first=entry.index)
