"""The check of ConsumeQueues against the log.

A checkpoint says which rows each queue had. The files must have these rows, equal to those in the
log. Later rows in a file belong to a flush whose checkpoint was never saved. The next one removes
them. They may be torn, but they must belong to that flush.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from store.index.block_seals import ROW_SIZE
from store.io.filesystem import ReadableFileSystem
from store.log.log_reader import SegmentFiles
from store.message.batch import QUEUE_ROW
from store.verify.findings import RESTORE, FindingKind, FindingLog
from store.verify.index.consume_queue_digests import ExpectedQueue, QueueFindings, TakenQueue
from store.verify.index.consume_queue_files import find_extra
from store.verify.log.log_commands import QueueTrim
from store.verify.log.queue_row_runs import QueueRowRun
from store.verify.plan.ranges import QueueKey, QueueSpan, RangeQueues, WrongRows
from store.verify.state.state_files import StateFiles

ADVICE = (
    "remove consumequeue, keyindex and the checkpoints: the next start makes them again, if the "
    "log is kept from entry 0; if it is not, " + RESTORE
)
OFFSETS = "a broker gave an offset twice or left one out; report it"


class QueueCheck:
    """Takes the rows of a range in order, and makes digests of them. ``state``: the small files of
    the replica.

    A second object absorbs the results of all ranges, and reports what is wrong over all of them.
    """

    def __init__(
        self, fs: ReadableFileSystem, state: StateFiles, directory: str, log: FindingLog
    ) -> None:
        machine = state.machine
        self._fs = fs
        self._directory = f"{directory}/consumequeue"
        lengths = [] if machine is None else machine.queues
        self._lengths = {(length.topic, length.queue_id): length for length in lengths}
        self._log = log
        self._checkpoint_path = state.checkpoint_path
        self._segments = SegmentFiles(fs, directory, state.identity.segment_size)
        self._expired_position = 0 if machine is None else machine.expired_position
        self._first_position = state.mark.first_position
        self._whole_log = self._first_position == 0
        self._uncertain = False
        self._emptied: set[str] = set()
        self._trimmed: dict[QueueKey, int] = {}
        self._queues: dict[QueueKey, TakenQueue] = {}

    @property
    def _keys(self) -> list[QueueKey]:
        return sorted({*self._queues, *self._lengths})

    # --- one range

    def take(self, runs: Sequence[QueueRowRun], *, covered: bool) -> None:
        """Takes rows of entries. ``covered``: the checkpoint covers these entries."""
        for run in runs:
            queue = self._queues.get(run.key)
            if queue is None:
                queue = self._queues[run.key] = TakenQueue(run.first_offset)
                queue.first = (run.first_offset, not self._uncertain, *run.entry)
            if queue.end_known and run.first_offset != queue.end:
                self._report_offset(run.entry, run.key, queue.end, run.first_offset)
            queue.end_known = True
            queue.end = run.end_offset
            first_offset, rows = run.first_offset, run.rows
            if covered:
                queue.covered_end = queue.end
                if queue.begin is None:
                    queue.begin = self._first_kept(first_offset, rows)
            # Expired rows get a digest of their own, because the files need not have them.
            size = (self._begin(run.key, queue.begin) - first_offset) * ROW_SIZE
            if 0 < size < len(rows):
                queue.digest(first_offset, rows[:size])
                first_offset, rows, queue.cut = first_offset + size // ROW_SIZE, rows[size:], True
            queue.digest(first_offset, rows)

    def _begin(self, key: QueueKey, begin: int | None) -> int:
        """The first offset of a queue: by what has expired from the log, or by the newest
        checkpoint if that is later, because its topic keeps messages for less time."""
        length = self._lengths.get(key)
        return max(begin or 0, 0 if length is None else length.first_offset)

    def lose_entries(self) -> None:
        """Entries could not be read: the next offset of each queue is unknown from here on."""
        self._uncertain = True
        for queue in self._queues.values():
            queue.end_known = False

    def empty(self, topic: str, *, covered: bool) -> None:
        """A topic was deleted. Its queues stay empty, because offsets are never used again."""
        if covered:
            self._emptied.add(topic)
            for (name, _queue_id), queue in self._queues.items():
                if name == topic:
                    queue.begin = None
                    queue.cut = True

    def trim(self, command: QueueTrim, *, covered: bool) -> None:
        """The retention of a topic has removed the messages of a queue before an offset."""
        if covered:
            key = command.topic, command.queue_id
            self._trimmed[key] = max(self._trimmed.get(key, 0), command.offset)

    def end_range(self, *, covered: bool) -> RangeQueues:
        """The result of the range."""
        spans = []
        for key, queue in self._queues.items():
            first_offset, first_known, index, position = queue.first
            spans.append(
                QueueSpan(
                    key,
                    first_offset,
                    first_known,
                    index,
                    position,
                    queue.begin,
                    queue.end,
                    queue.end_known,
                    queue.covered_end if covered else None,
                    tuple(digest for _, digest in queue.digests),
                )
            )
        return RangeQueues(
            tuple(spans), frozenset(self._emptied), self._uncertain, tuple(self._trimmed.items())
        )

    def _first_kept(self, first_offset: int, rows: bytes) -> int | None:
        """The offset of the first row whose record has not expired."""
        for offset, row in enumerate(QUEUE_ROW.iter_unpack(rows), first_offset):
            if row[0] >= self._expired_position:
                return offset
        return None

    # --- all ranges

    def absorb(self, queues: RangeQueues, number: int = 0, *, reported: bool = False) -> None:
        """Takes the next range, in order. ``reported``: wrong offsets are findings already."""
        seen = set()
        for span in queues.spans:
            seen.add(span.key)
            queue = self._queues.get(span.key)
            if queue is None:
                known = self._whole_log and not self._uncertain and span.first_known
                queue = self._queues[span.key] = TakenQueue(0 if known else span.first_offset)
            wrong_offset = span.first_offset != queue.end
            if queue.end_known and span.first_known and wrong_offset and not reported:
                entry = (span.index, span.position)
                self._report_offset(entry, span.key, queue.end, span.first_offset)
            queue.end, queue.end_known = span.end, span.end_known
            queue.digests += [(number, digest) for digest in span.digests]
            if span.covered_end is not None:
                queue.covered_end = span.covered_end
                if queue.begin is None or span.key[0] in queues.emptied:
                    queue.begin = span.begin
        for key, queue in self._queues.items():
            if key not in seen:
                if key[0] in queues.emptied:
                    queue.begin = None
                queue.end_known = queue.end_known and not queues.lost
        for key, offset in queues.trimmed:
            self._trimmed[key] = max(self._trimmed.get(key, 0), offset)
        self._uncertain = self._uncertain or queues.lost

    def expected(self) -> Iterator[ExpectedQueue]:
        """What the files must hold, queue by queue in order."""
        for key in self._keys:
            queue, length = self._queues.get(key), self._lengths.get(key)
            first = 0 if length is None else length.first_offset
            covered_end = end = 0 if length is None else length.end_offset
            if queue is not None:
                # If the last messages could not be read, the files may have their rows.
                end = queue.end if queue.end_known else max(queue.end, end)
            digests = () if queue is None else tuple(queue.digests)
            yield ExpectedQueue(key, first, end, digests, covered_end)

    def check_lengths(self, *, begins: bool = True) -> None:
        """Checks where queues end in the checkpoint, and where they begin if ``begins``."""
        for key in self._keys:
            self._check_length(key, begins=begins)

    def finish(
        self,
        log_end: int,
        files: Mapping[QueueKey, QueueFindings],
        wrong: Mapping[QueueKey, Sequence[WrongRows]],
    ) -> None:
        """Reports what is wrong over all ranges.

        ``log_end``: the position at which the log ends. ``files``: findings about the files of each
        queue. ``wrong``: the rows that differ from the log.
        """
        for key in self._keys:
            self._check_length(key)
            for rows in wrong.get(key, ()):
                self._report_wrong(key, rows)
            found = files.get(key, QueueFindings())
            self._log.findings += found.shape
            if key not in wrong:
                self._log.findings += found.behind
        find_extra(self._fs, self._directory, set(self._keys), log_end, self._log)

    def _check_length(self, key: QueueKey, *, begins: bool = True) -> None:
        """Compares a queue in the checkpoint with the log up to it."""
        queue, length = self._queues.get(key), self._lengths.get(key)
        found = "no such queue" if length is None else _offsets(*length[2:])
        expected = "no such queue"
        if queue is None:
            is_right = not self._whole_log or self._uncertain
        elif not queue.end_known or self._uncertain:
            return
        else:
            begin = queue.covered_end if queue.begin is None else queue.begin
            begin = min(max(begin, self._trimmed.get(key, 0)), queue.covered_end)
            expected = _offsets(begin, queue.covered_end)
            if length is None:
                is_right = queue.covered_end <= 0 or queue.begin is None
            else:
                begins_right = not begins or length.first_offset == begin
                # The log has less of the queue than the checkpoint, if more has expired since, or
                # if the replica began from a snapshot.
                if self._first_position > self._expired_position:
                    begins_right |= length.first_offset < begin
                is_right = begins_right and length.end_offset == queue.covered_end
        if not is_right:
            said = f"queue {key[0]}/{key[1]}: {expected}"
            self._log.add(FindingKind.CHECKPOINT, self._checkpoint_path, 16, said, found, ADVICE)

    def _report_offset(
        self, entry: tuple[int, int], key: QueueKey, expected: int, found: int
    ) -> None:
        index, position = entry
        path, byte = self._segments.locate(position)
        said = f"offset {expected} next in queue {key[0]}/{key[1]}"
        kind = FindingKind.QUEUE_OFFSET
        self._log.add(kind, path, byte, said, f"offset {found}", OFFSETS, first=index)

    def _report_wrong(self, key: QueueKey, wrong: WrongRows) -> None:
        offsets = _offsets(wrong.offset_first, wrong.offset_last + 1)
        self._log.add(
            FindingKind.CONSUME_QUEUE,
            wrong.path,
            wrong.byte,
            f"{offsets} of queue {key[0]}/{key[1]}, the row {wrong.expected.hex()}",
            f"the row {wrong.found.hex()}" if wrong.found else "no row",
            ADVICE,
            first=wrong.index_first,
            last=wrong.index_last,
        )


def _offsets(first: int, end: int) -> str:
    if end <= first:
        return f"no messages, the next at offset {end}"
    return f"offset {first}" if end == first + 1 else f"offsets {first} to {end - 1}"
