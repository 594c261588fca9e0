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
from store.verify.index.consume_queue_check import QueueCheck
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
from store.verify.plan.message_counts import MessageCounts
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
"""A window is halved down to this many entries. Their batches are then checked one by one."""

ROWS_AT_ONCE = 1 << 16
"""Queue rows that are collected before their CRCs are computed."""


class ReplicaCheck:
    """Takes the entries of a range in order. Derives from them what the other files must hold.

    ``directories``: all replicas of the group.
    """

    def __init__(
        self,
        fs: AuditFiles,
        plan: ReplicaPlan,
        border: Border,
        *,
        directories: Sequence[str],
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
        self._border = border
        self._fs, self._buffers = fs, buffers
        self._walk: LogWalk = DamagedLogWalk(
            fs,
            directory,
            state,
            self._log,
            directories=directories,
            border=border,
            last_index=last_index,
            buffers=buffers,
        )
        self._is_covered = last_index is not None and last_index <= state.checkpoint_index
        """Whether the newest checkpoint covers the range. No range goes beyond a checkpoint."""
        indexed = 0 if state.rebuilds else state.checkpoint_index + 1
        self._index = EntryIndexCheck(fs, directory, indexed, self._log)
        self._queues = QueueCheck(fs, state, directory, self._log)
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
        self.counts = MessageCounts()

    def run(self) -> None:
        """Checks this replica alone. Damage becomes findings."""
        self._walk_with([self], CorruptBatchError, BatchMismatchError)

    def run_shared(self, followers: Sequence[ReplicaCheck], last_index: int) -> None:
        """Checks replicas whose logs have equal bytes and no damage. Derived files may differ.

        Raises :class:`~store.errors.StoreError` or ``OSError`` for anything wrong in the log. Its
        findings are useless then.
        """
        checks = [self, *followers]
        if self._has_keys:
            for follower in followers:
                follower._keys.follow(self._keys)
        self._walk = LogWalk(
            self._fs,
            [check._report.directory for check in checks],
            self._report.segment_size,
            border=self._border,
            last_index=last_index,
            buffers=self._buffers,
        )
        self._walk_with(checks)
        for check in checks:
            check._walk = self._walk
            check._term_starts, check._last_term = self._term_starts, self._last_term
            check._times, check._configuration = self._times, self._configuration
            check._effects = self._effects
            check._report.messages, check.counts = self._report.messages, self.counts

    def end(self, place: int) -> tuple[ReplicaReport, ReplicaRange]:
        """The results, after all entries. ``place``: that of the replica."""
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
        else:  # files may lack rows of earlier ranges that have expired in this one
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

    def _walk_with(self, checks: Sequence[ReplicaCheck], *reported: type[Exception]) -> None:
        """Takes all entries. Errors of the types ``reported`` become findings; others raise."""
        lost = 0
        for window in self._walk.windows():
            if len(self._walk.lost) != lost:
                lost = len(self._walk.lost)
                self._lose_entries(checks)
            self._take_headers(window, checks)
            data = [entry for entry in window.entries if entry.kind is EntryKind.DATA]
            if data:
                self._take_data(window, data, checks, reported)
        self._take_runs(checks)
        if len(self._walk.lost) != lost:
            self._lose_entries(checks)

    def _take_headers(self, window: Window, checks: Sequence[ReplicaCheck]) -> None:
        entries = window.entries
        first, rows = entries[0].index, b"".join(map(index_row, entries))
        for entry in entries:
            if entry.term != self._last_term:
                self._term_starts.append((entry.term, entry.index))
                self._last_term = entry.term
            if entry.kind is EntryKind.CONFIGURATION:
                self._configuration = bytes(entry.body)
        for check in checks:
            check._index.take(first, rows)
            for index in check._named.indexes:
                if 0 <= index - first < len(entries):
                    check._named.check(entries[index - first])

    def _take_data(
        self,
        window: Window,
        data: Sequence[Entry],
        checks: Sequence[ReplicaCheck],
        reported: tuple[type[Exception], ...],
    ) -> None:
        """Takes data entries of a window together, or in halves if that proves nothing."""
        if self._take_together(window, data, checks):
            return
        half = len(data) // 2
        if half >= FEW_ENTRIES:
            self._take_data(window, data[:half], checks, reported)
            self._take_data(window, data[half:], checks, reported)
            return
        for entry in data:
            try:
                self._take_alone(entry, checks)
            except reported as error:
                self._report_batch(entry, error)

    def _take_together(
        self, window: Window, data: Sequence[Entry], checks: Sequence[ReplicaCheck]
    ) -> bool:
        """Takes data entries of a window, if all of them are proved to be right."""
        columns = read_columns(window.data, window.position, data, self._topics)
        try:
            if columns is None and len(data) < 2 * FEW_ENTRIES:
                columns = checked_columns(data, self._topics)
            if columns is None:
                return False
            commands = commands_of(columns, self._topics)
        except (CorruptBatchError, BatchMismatchError):
            return False
        self._take_columns(columns, commands, checks)
        return True

    def _take_alone(self, entry: Entry, checks: Sequence[ReplicaCheck]) -> None:
        """Takes one data entry.

        Raises :class:`BatchMismatchError` and :class:`~store.errors.CorruptBatchError`.
        """
        batch = decode_batch(entry.body)
        columns = plain_columns([entry], [batch], self._topics)
        self._times.take(entry.position, columns.last_ms)
        # The rows of the entry are in the files, even if its records contradict them.
        self._take_columns(columns, commands_of(columns, self._topics), checks)
        check_batch(entry, batch)

    def _take_columns(
        self,
        columns: BatchColumns,
        commands: dict[int, EntryCommands],
        checks: Sequence[ReplicaCheck],
    ) -> None:
        """Takes the rows and commands of batches: they change derived files and broker state."""
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
                self._take_runs(checks)
                for check in checks:
                    check._apply_file_commands(said.of_files, columns, number)
        self._runs.add(columns, begun)
        if self._runs.count >= ROWS_AT_ONCE:
            self._take_runs(checks)
        self._times.take(columns.entries[0].position, columns.last_ms)
        places = [(entry.position, entry.index) for entry in columns.entries]
        for check in checks:
            if check._is_covered:
                check._keys.take(columns.key_rows, places)
        self._report.messages += len(columns.rows)
        for (topic, minute), messages in columns.count_messages(self._topics):
            self.counts.add(topic, minute, messages)

    def _take_runs(self, checks: Sequence[ReplicaCheck]) -> None:
        """Gives the collected queue rows to the checks of the queues."""
        runs = self._runs.take()
        for check in checks:
            check._queues.take(runs, covered=check._is_covered)

    def _lose_entries(self, checks: Sequence[ReplicaCheck]) -> None:
        """Entries could not be read: the next offset of each queue is unknown from here on."""
        self._take_runs(checks)
        self._queues.lose_entries()

    def _apply_file_commands(
        self, commands: Sequence[FileCommand], columns: BatchColumns, number: int
    ) -> None:
        """Applies commands about files, of entry number ``number`` of ``columns``."""
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

    def _report_batch(self, entry: Entry, error: Exception) -> None:
        byte, expected, found = 0, "a batch", str(error)
        if isinstance(error, BatchMismatchError):
            byte, expected, found = error.byte, f"{error.reason} {error.expected}", str(error.found)
        else:
            self._lose_entries([self])
        path, start = self._walk.segment_path(entry.position)
        kind, at = FindingKind.BATCH, start + byte
        self._log.add(kind, path, at, expected, found, LEADER_FAULT, first=entry.index)
