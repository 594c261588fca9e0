"""One replica's part of a range: its entries in order, and all that is derived on the way."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

from store.errors import CorruptBatchError
from store.log.entry import Entry, EntryKind
from store.log.log_reader import Window
from store.message.batch import decode_batch
from store.state.checkpoint import Checkpoint
from store.verify.files.audit_files import AuditFiles
from store.verify.files.read_buffers import Buffers
from store.verify.findings import INCOMPLETE, RESTORE, FindingKind, FindingLog
from store.verify.index.entry_index_check import EntryIndexCheck, index_row
from store.verify.index.index_checks import open_key_check, open_queue_check
from store.verify.index.key_index_digests import KeyDigests
from store.verify.log.batch_check import BatchMismatchError, check_batch
from store.verify.log.batch_columns import BatchColumns, TopicNumbers, plain_columns, read_columns
from store.verify.log.log_commands import FileCommand, StatedProof, file_commands, unpack_commands
from store.verify.log.log_walk import LogWalk
from store.verify.log.queue_row_runs import QueueRowRuns
from store.verify.log.shared_log import SharedLog
from store.verify.plan.ranges import (
    Border,
    Compared,
    RangeKeys,
    RangeQueues,
    RangeState,
    ReplicaPlan,
)
from store.verify.replay.state_check import SegmentTimes
from store.verify.replay.state_proof_check import proved_checkpoints
from store.verify.replica_report import ReplicaReport
from store.verify.state.broker_state import COUNTED_TOPICS, BrokerEffects
from store.verify.state.state_files import StateFiles

LEADER_FAULT = "the entry is as a leader made it: report it; all replicas should have the same"

NOTHING = Compared()
ROWS_AT_ONCE = 1 << 16
"""Rows of ConsumeQueues that are gathered before files are read to compare them."""


class ReplicaCheck:
    """The check of one replica's part of a range, entry by entry. See the module."""

    def __init__(
        self,
        fs: AuditFiles,
        plan: ReplicaPlan,
        border: Border,
        *,
        last_index: int | None,
        end_position: int | None,
        compared: Compared = NOTHING,
    ) -> None:
        """``compared`` are the derived files to be compared with the log row by row; of others it
        is digested what they must hold."""
        directory = plan.directory
        self._report = ReplicaReport(
            directory, plan.identity.group, plan.identity.node, plan.identity.segment_size
        )
        self._log = FindingLog(self._report.name)
        self._report.findings = self._log.findings
        # What the small files themselves have wrong was told with the plan.
        self._state = state = plan.state or StateFiles(plan.identity)
        self._border = border
        self._fs = fs
        self._own = LogWalk(fs, directory, state, self._log, border=border, last_index=last_index)
        self._walk: LogWalk | SharedLog = self._own
        checkpoint = state.checkpoint
        self._covered_index = -1 if checkpoint is None else checkpoint.index
        self._is_covered = last_index is not None and last_index <= self._covered_index
        indexed = 0 if state.rebuilds else self._covered_index + 1
        self._index = EntryIndexCheck(fs, directory, indexed, self._log)
        self._queues = open_queue_check(fs, state, directory, self._log, compared.queues)
        self._keys = open_key_check(
            fs,
            state,
            directory,
            self._log,
            positions=(border.position, end_position),
            lost=self._walk.lost,
            compared=compared.keys,
        )
        named = {state.mark.index, self._covered_index}
        named |= {older.checkpoint.index for older in state.older}
        if state.manifest is not None:
            named.add(state.manifest.commit_index)
        self._named = sorted(named)
        """Entries that the small files name."""
        self._topics = TopicNumbers()
        self._runs = QueueRowRuns(self._topics)
        self._term_starts: list[tuple[int, int]] = []
        self._last_term = max(border.term, 0)
        self._times = SegmentTimes(plan.identity.segment_size)
        self._configuration: bytes | None = None
        self._effects = BrokerEffects()
        self.counts: dict[tuple[str, int], int] = {}

    def run(self) -> None:
        """Reads the log of this replica and checks all of it, telling what is damaged."""
        walk = self._own
        lost = 0
        for entry in walk.entries():
            if len(walk.lost) != lost:
                lost = len(walk.lost)
                self._queues.lose()
            try:
                self._check_entry(entry)
            except CorruptBatchError as error:
                self._queues.lose()
                self._tell_batch(entry, 0, expected="a batch", found=error)
            except BatchMismatchError as error:
                expected = f"{error.what} {error.expected}"
                self._tell_batch(entry, error.byte, expected=expected, found=error.found)
        if len(walk.lost) != lost:
            self._queues.lose()

    def run_shared(
        self, followers: Sequence[ReplicaCheck], last_index: int, buffers: Buffers
    ) -> None:
        """The same where nothing is wrong with the log, for others that have the same bytes too.

        What is derived is checked for each replica, and may be wrong. Raises
        :class:`~store.errors.StoreError` or ``OSError`` for anything else; then what was found
        here is of no use.
        """
        everyone = [self, *followers]
        if self._has_keys:
            for follower in followers:
                if isinstance(self._keys, KeyDigests) and isinstance(follower._keys, KeyDigests):
                    follower._keys.follow(self._keys)
        log = SharedLog(
            self._fs,
            [check._report.directory for check in everyone],
            self._report.segment_size,
            border=self._border,
            last_index=last_index,
            buffers=buffers,
        )
        for window in log.windows():
            self._check_window(window, everyone)
        self._take_runs(everyone)
        for check in everyone:
            check._walk = log
            check._term_starts, check._last_term = self._term_starts, self._last_term
            check._times, check._configuration = self._times, self._configuration
            check._effects = self._effects
            check._report.messages, check.counts = self._report.messages, self.counts

    def end(self) -> tuple[ReplicaReport, RangeQueues, RangeKeys, RangeState | None]:
        """What came out, once all entries were taken."""
        self._index.finish()
        if self._is_covered:
            self._check_terms()
        queues = self._queues.end_range(covered=self._is_covered)
        if self._has_keys:
            keys = self._keys.end_range()
        else:  # what was given up here may lack to files that earlier ranges compare
            keys = RangeKeys(expired_position=self._keys.expired_position)
        report, walk = self._report, self._walk
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
        return report, queues, keys, state

    @property
    def _has_keys(self) -> bool:
        """Whether files of the key index must hold the rows of the range."""
        return self._is_covered and self._state.machine is not None

    # --- entries

    def _check_entry(self, entry: Entry) -> None:
        """Raises :class:`BatchMismatchError` and :class:`CorruptBatchError`."""
        self._note_terms([entry])
        self._take_headers([entry], index_row(entry))
        if entry.kind is not EntryKind.DATA:
            self._take_others([entry])
            return
        batch = decode_batch(entry.body)
        columns = plain_columns(entry, batch, self._topics)
        self._times.take(entry.position, columns.last_ms)
        commands = unpack_commands(batch.commands)
        covered = entry.index <= self._covered_index
        # Readable or not, what the entry's rows say is what was put into the files.
        self._runs.add(columns)
        self._queues.take(self._runs.take(), covered=covered)
        if covered:
            self._keys.take(columns.key_rows, [(entry.position, entry.index)])
        self._obey(file_commands(commands), columns, 0, covered=covered)
        if self._is_covered:
            self._effects.take(batch, commands, entry.position)
        self._count(columns)
        check_batch(entry, batch)

    def _check_window(self, window: Window, everyone: Sequence[ReplicaCheck]) -> None:
        self._note_terms(window.entries)
        index_rows = b"".join(map(index_row, window.entries))
        for check in everyone:
            check._take_headers(window.entries, index_rows)
        data = [entry for entry in window.entries if entry.kind is EntryKind.DATA]
        if len(data) < len(window.entries):
            self._take_others(window.entries)
        if not data:
            return
        proved = read_columns(window.data, window.position, data, self._topics)
        if proved is not None:
            self._take_columns(proved, everyone)
            return
        for entry in data:
            batch = decode_batch(entry.body)
            check_batch(entry, batch)
            self._take_columns(plain_columns(entry, batch, self._topics), everyone)

    def _take_columns(self, columns: BatchColumns, everyone: Sequence[ReplicaCheck]) -> None:
        """Takes what batches that are right say of the files and of the broker's state."""
        begun = 0
        packed = dict(columns.commands)
        counting = columns.entries_with(self._topics.numbers_known(COUNTED_TOPICS))
        for number in sorted(counting.union(packed)):
            entry = columns.entries[number]
            commands = unpack_commands(packed.get(number, b""))
            batch = decode_batch(entry.body) if number in counting else None
            self._effects.take(batch, commands, entry.position)
            of_files = file_commands(commands)
            if of_files:
                self._runs.add(columns, begun, number + 1)
                begun = number + 1
                self._take_runs(everyone)
                for check in everyone:
                    check._obey(of_files, columns, number, covered=check._is_covered)
        self._runs.add(columns, begun)
        if self._runs.count >= ROWS_AT_ONCE:
            self._take_runs(everyone)
        self._times.take(columns.entries[0].position, columns.last_ms)
        places = [(entry.position, entry.index) for entry in columns.entries]
        for check in everyone:
            if check._is_covered:
                check._keys.take(columns.key_rows, places)
        self._count(columns)

    def _take_others(self, entries: Sequence[Entry]) -> None:
        """Takes entries that are no batches."""
        for entry in entries:
            if entry.kind is EntryKind.CONFIGURATION:
                self._configuration = bytes(entry.body)

    def _take_runs(self, everyone: Sequence[ReplicaCheck]) -> None:
        """Compares the rows of ConsumeQueues that were gathered."""
        runs = self._runs.take()
        for check in everyone:
            check._queues.take(runs, covered=check._is_covered)

    def _note_terms(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            if entry.term != self._last_term:
                self._term_starts.append((entry.term, entry.index))
                self._last_term = entry.term

    def _take_headers(self, entries: Sequence[Entry], rows: bytes) -> None:
        """``rows`` are those of the entry index."""
        first = entries[0].index
        self._index.take(first, rows)
        for index in self._named:
            if 0 <= index - first < len(entries):
                self._check_named(entries[index - first])

    def _obey(
        self, commands: Sequence[FileCommand], columns: BatchColumns, number: int, *, covered: bool
    ) -> None:
        """Does what the commands say of files; they are of the entry of that number."""
        for command in commands:
            if isinstance(command, StatedProof):
                self._report.proofs += proved_checkpoints(
                    command,
                    columns.entries[number],
                    self._state,
                    has_messages=bool((columns.runs.entries == number).any()),
                )
            elif isinstance(command, str):
                self._queues.empty(command, covered=covered)
            else:
                self._keys.expired_position = max(self._keys.expired_position, command)

    def _count(self, columns: BatchColumns) -> None:
        self._report.messages += len(columns.rows)
        for key, messages in columns.count_messages(self._topics):
            self.counts[key] = self.counts.get(key, 0) + messages

    def _tell_batch(self, entry: Entry, byte: int, *, expected: object, found: object) -> None:
        path, start = self._walk.segment_path(entry.position)
        self._log.add(
            FindingKind.BATCH,
            path,
            start + byte,
            expected=expected,
            found=found,
            advice=LEADER_FAULT,
            first=entry.index,
        )

    # --- what the small files say about entries

    def _check_named(self, entry: Entry) -> None:
        """Mark, checkpoint and manifest name an entry each: it must be the one in the log."""
        state = self._state
        found = (entry.end, entry.chain_crc)
        mark, checkpoint, manifest = state.mark, state.checkpoint, state.manifest
        if entry.index == mark.index:
            self._check_name(
                FindingKind.MARK, state.mark_path, entry, (mark.position, mark.chain_crc), found
            )
        if checkpoint is not None and entry.index == checkpoint.index:
            named = (checkpoint.end_position, checkpoint.chain_crc)
            path, kept = state.checkpoint_path, checkpoint
            self._check_name(FindingKind.CHECKPOINT, path, entry, named, found)
            if kept.term != entry.term:
                self._tell_terms(f"term {entry.term}", f"term {kept.term}", path, kept)
        for older in state.older:
            path, kept = older.path, older.checkpoint
            if entry.index == kept.index:
                named = (kept.end_position, kept.chain_crc)
                self._check_name(FindingKind.CHECKPOINT, path, entry, named, found)
                self._check_term(FindingKind.CHECKPOINT, path, entry, kept.term)
        if manifest is not None and entry.index == manifest.commit_index:
            named = (manifest.end_position, manifest.chain_crc)
            path, kind = state.manifest_path, FindingKind.FORMAT
            self._check_name(kind, path, entry, named, found, advice=INCOMPLETE)
            self._check_term(kind, path, entry, manifest.term, INCOMPLETE)

    def _check_term(
        self, kind: FindingKind, path: str, entry: Entry, term: int, advice: str = RESTORE
    ) -> None:
        if term != entry.term:
            expected, found = f"entry {entry.index} to be of term {entry.term}", f"term {term}"
            self._log.add(
                kind, path, 0, expected=expected, found=found, advice=advice, first=entry.index
            )

    def _check_name(
        self,
        kind: FindingKind,
        path: str,
        entry: Entry,
        named: tuple[int, int],
        found: tuple[int, int],
        *,
        advice: str = RESTORE,
    ) -> None:
        if named != found:
            self._log.add(
                kind,
                path,
                0,
                expected=f"entry {entry.index} to end at {found[0]} with chain {found[1]:08x}",
                found=f"{named[0]} and {named[1]:08x}",
                advice=advice,
                first=entry.index,
            )

    def _check_terms(self) -> None:
        """The checkpoints' term starts must be those of the log, as far as the range has any."""
        state = self._state
        if state.checkpoint is None or self._walk.lost:
            return
        first, last = self._walk.first_index, self._walk.last_index
        # Whether a term starts with the first entry is known only where its forerunner is.
        first += self._border.term < 0 and first > 0
        found = [start for start in self._term_starts if first <= start[1] <= last]
        for path, checkpoint in (
            (state.checkpoint_path, state.checkpoint),
            *((older.path, older.checkpoint) for older in state.older),
        ):
            named = [start for start in checkpoint.term_starts if first <= start[1] <= last]
            if last <= checkpoint.index and named != found:
                # The first one that differs, as the ranges behind may have others.
                odd = min({*named} ^ {*found}, key=itemgetter(1), default=found[0])
                right, wrong = (
                    next((f"term {term}" for term, index in starts if index == odd[1]), "no term")
                    for starts in (found, named)
                )
                self._tell_terms(f"{right} to start with entry {odd[1]}", wrong, path, checkpoint)

    def _tell_terms(self, expected: str, found: str, path: str, checkpoint: Checkpoint) -> None:
        self._log.add(
            FindingKind.CHECKPOINT,
            path,
            16,
            expected=expected,
            found=found,
            first=checkpoint.index,
        )
