"""Checks the ConsumeQueues against those that the log gives.

A checkpoint says which rows each queue had. Those must be in the files, equal to the rows in the
log. What a file holds beyond is of a flush whose checkpoint was never saved: the next start cuts
it, and it may be torn, but it must not be something else either.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from store.index.block_seals import ROW_SIZE
from store.io.filesystem import ReadableFileSystem
from store.message.batch import QUEUE_ROW
from store.state.machine_state import QueueLength
from store.verify.files.row_files import is_torn
from store.verify.findings import RESTORE, FindingKind, FindingLog
from store.verify.index.consume_queue_digests import ExpectedQueue, QueueFindings, TakenQueue
from store.verify.index.consume_queue_files import QueueFiles, find_extra
from store.verify.log.queue_row_runs import QueueRowRun
from store.verify.plan.ranges import QueueSpan, RangeQueues, WrongRows

ADVICE = (
    "remove consumequeue, keyindex and the checkpoints: the next start makes them again, if the "
    "log is kept from entry 0; if it is not, " + RESTORE
)
OFFSETS = "a broker gave an offset twice or left one out; report it"


class QueueCheck:
    """Takes the batches of a range in order, and tells which rows are wrong.

    Another one absorbs what the ranges gave, and then tells what is wrong with the whole.
    """

    def __init__(
        self,
        fs: ReadableFileSystem,
        directory: str,
        lengths: Sequence[QueueLength],
        log: FindingLog,
        *,
        checkpoint_path: str,
        segment_path: Callable[[int], tuple[str, int]],
        expired_position: int,
        first_position: int,
        compared: Collection[tuple[str, int]] = (),
    ) -> None:
        self._fs = fs
        self._compared = compared
        self._directory = f"{directory}/consumequeue"
        self._lengths = {(length.topic, length.queue_id): length for length in lengths}
        self._log = log
        self._checkpoint_path = checkpoint_path
        self._segment_path = segment_path
        self._expired_position = expired_position
        self._first_position = first_position
        self._whole_log = first_position == 0
        self._uncertain = False
        self._emptied: set[str] = set()
        self._queues: dict[tuple[str, int], TakenQueue] = {}

    def take(self, runs: Sequence[QueueRowRun], *, covered: bool) -> None:
        """Compares the rows of entries; ``covered`` says that the checkpoint includes these."""
        for run in runs:
            queue = self._queues.get(run.key)
            if queue is None:
                queue = self._begin(run.key, run.first_offset)
                queue.first = (run.first_offset, not self._uncertain, *run.entry)
            if queue.end_known and run.first_offset != queue.end:
                self._tell_offset(run.entry, run.key, expected=queue.end, found=run.first_offset)
            queue.end_known = True
            queue.end = run.end_offset
            rows = run.rows
            if covered:
                queue.covered_end = queue.end
                if queue.begin is None:
                    self._set_begin(queue, run.first_offset, rows)
            if run.key in self._compared:
                self._compare(queue, run, rows)
            else:
                self._digest(queue, run.first_offset, rows)

    def lose(self) -> None:
        """Entries could not be read: where a queue goes on is unknown until its next message."""
        self._uncertain = True
        for queue in self._queues.values():
            queue.end_known = False

    def empty(self, topic: str, *, covered: bool) -> None:
        """A topic was deleted. Its queues stay, empty: an offset is never used again."""
        if covered:
            self._emptied.add(topic)
        for (name, _queue_id), queue in self._queues.items():
            if name == topic and covered:
                queue.begin = None
                queue.cut = True

    def end_range(self, *, covered: bool) -> RangeQueues:
        """What the ranges tell together."""
        spans = []
        for key, queue in self._queues.items():
            first_offset, first_known, index, position = queue.first
            spans.append(
                QueueSpan(
                    *key,
                    first_offset,
                    first_known,
                    index,
                    position,
                    queue.begin,
                    queue.end,
                    queue.end_known,
                    queue.covered_end if covered else None,
                    tuple(digest for _, digest in queue.digests),
                    tuple(queue.wrong),
                )
            )
        return RangeQueues(tuple(spans), frozenset(self._emptied), self._uncertain)

    def check_lengths(self, *, begins: bool) -> None:
        """Tells of queues that do not end where the log has them, or begin, if that is asked."""
        for key in sorted({*self._queues, *self._lengths}):
            self._check_length(key, self._queues.get(key), begins=begins)

    def absorb(self, queues: RangeQueues, number: int = 0, *, told: bool = False) -> None:
        """Takes the next range, in order. What is wrong with offsets may be ``told`` already."""
        seen = set()
        for span in queues.spans:
            key = (span.topic, span.queue_id)
            seen.add(key)
            queue = self._queues.get(key)
            if queue is None:
                known = self._whole_log and not self._uncertain and span.first_known
                first_offset = 0 if known else span.first_offset
                queue = TakenQueue(self._files(key), self._lengths.get(key), first_offset)
                self._queues[key] = queue
            wrong_offset = span.first_offset != queue.end
            if queue.end_known and span.first_known and wrong_offset and not told:
                entry = (span.index, span.position)
                self._tell_offset(entry, key, expected=queue.end, found=span.first_offset)
            queue.end, queue.end_known = span.end, span.end_known
            queue.digests += [(number, digest) for digest in span.digests]
            for wrong in span.wrong:
                queue.add_wrong(wrong)
            if span.covered_end is not None:
                queue.covered_end = span.covered_end
                if queue.begin is None or span.topic in queues.emptied:
                    queue.begin = span.begin
        for key, queue in self._queues.items():
            if key not in seen:
                if key[0] in queues.emptied:
                    queue.begin = None
                queue.end_known = queue.end_known and not queues.lost
        self._uncertain = self._uncertain or queues.lost

    def expected(self) -> Iterator[ExpectedQueue]:
        """What the files must hold by all ranges, queue by queue in order."""
        for key in sorted({*self._queues, *self._lengths}):
            queue, length = self._queues.get(key), self._lengths.get(key)
            first = 0 if length is None else length.first_offset
            covered_end = end = 0 if length is None else length.end_offset
            if queue is not None:
                # Where the queue's last messages could not be read, their rows are not too many.
                end = queue.end if queue.end_known else max(queue.end, end)
            digests = () if queue is None else tuple(queue.digests)
            yield ExpectedQueue(*key, first, end, digests, covered_end)

    def finish(self, log_end: int, files: Mapping[tuple[str, int], QueueFindings]) -> None:
        """Tells what is wrong with the whole; ``log_end`` is where the log ends.

        ``files`` has what was wrong with the files of each queue, as files.
        """
        for key in sorted({*self._queues, *self._lengths}):
            queue = self._queues.get(key)
            self._check_length(key, queue)
            for wrong in () if queue is None else queue.wrong:
                self._tell_wrong(key, wrong)
            found = files.get(key, QueueFindings())
            self._log.findings += found.shape
            if queue is None or not queue.wrong:
                self._log.findings += found.behind
        known = {*self._queues, *self._lengths}
        find_extra(self._fs, self._directory, known, log_end, self._log)

    # --- one run

    def _files(self, key: tuple[str, int]) -> QueueFiles:
        return QueueFiles(self._fs, f"{self._directory}/{key[0]}/{key[1]}")

    def _begin(self, key: tuple[str, int], first_offset: int) -> TakenQueue:
        queue = TakenQueue(self._files(key), self._lengths.get(key), first_offset)
        self._queues[key] = queue
        return queue

    def _set_begin(self, queue: TakenQueue, first_offset: int, rows: bytes) -> None:
        for offset, row in enumerate(QUEUE_ROW.iter_unpack(rows), first_offset):
            if row[0] >= self._expired_position:
                queue.begin = offset
                break

    def _digest(self, queue: TakenQueue, first_offset: int, rows: bytes) -> None:
        """What has been given up is apart: its rows need not be there."""
        if queue.begin is not None and queue.begin > first_offset:
            size = (queue.begin - first_offset) * ROW_SIZE
            if size < len(rows):
                queue.digest(first_offset, rows[:size])
                first_offset, rows, queue.cut = queue.begin, rows[size:], True
        queue.digest(first_offset, rows)

    def _compare(self, queue: TakenQueue, run: QueueRowRun, rows: bytes) -> None:
        length, first_offset = queue.length, run.first_offset
        retained = 0 if length is None else length.first_offset
        covered_end = 0 if length is None else length.end_offset
        skipped = max(retained - first_offset, 0)
        first_offset, rows = first_offset + skipped, rows[skipped * ROW_SIZE :]
        found = queue.files.rows(first_offset, len(rows) // ROW_SIZE)
        if found == rows:
            return
        for at in range(0, len(rows), ROW_SIZE):
            offset = first_offset + at // ROW_SIZE
            expected, row = rows[at : at + ROW_SIZE], found[at : at + ROW_SIZE]
            if row == expected or (offset >= covered_end and is_torn(row, expected)):
                continue
            path, byte = queue.files.locate(offset)
            index = run.index_of(offset)
            queue.add_wrong(WrongRows(path, byte, index, index, offset, offset, expected, row))

    # --- telling

    def _check_length(
        self, key: tuple[str, int], queue: TakenQueue | None, *, begins: bool = True
    ) -> None:
        """The checkpoint must know the queue as the log up to it gives it."""
        length = self._lengths.get(key)
        found = "no such queue" if length is None else _offsets(*length[2:])
        if queue is None:
            if self._whole_log and not self._uncertain:
                self._tell_length(key, expected="no such queue", found=found)
            return
        if not queue.end_known or self._uncertain:
            return
        begin = queue.covered_end if queue.begin is None else queue.begin
        if length is None:
            if queue.covered_end > 0 and queue.begin is not None:
                self._tell_length(key, expected=_offsets(begin, queue.covered_end), found=found)
            return
        begins_right = (
            not begins
            or length.first_offset == begin
            or (
                # Given up behind the checkpoint, or begun from a snapshot: the log has less of the
                # queue than the checkpoint.
                self._first_position > self._expired_position and length.first_offset < begin
            )
        )
        if not begins_right or length.end_offset != queue.covered_end:
            self._tell_length(key, expected=_offsets(begin, queue.covered_end), found=found)

    def _tell_length(self, key: tuple[str, int], *, expected: str, found: str) -> None:
        self._log.add(
            FindingKind.CHECKPOINT,
            self._checkpoint_path,
            16,
            expected=f"queue {key[0]}/{key[1]}: {expected}",
            found=found,
            advice=ADVICE,
        )

    def _tell_offset(
        self, entry: tuple[int, int], key: tuple[str, int], *, expected: int, found: int
    ) -> None:
        index, position = entry
        path, byte = self._segment_path(position)
        self._log.add(
            FindingKind.QUEUE_OFFSET,
            path,
            byte,
            expected=f"offset {expected} next in queue {key[0]}/{key[1]}",
            found=f"offset {found}",
            advice=OFFSETS,
            first=index,
        )

    def _tell_wrong(self, key: tuple[str, int], wrong: WrongRows) -> None:
        offsets = _offsets(wrong.offset_first, wrong.offset_last + 1)
        self._log.add(
            FindingKind.CONSUME_QUEUE,
            wrong.path,
            wrong.byte,
            expected=f"{offsets} of queue {key[0]}/{key[1]}, the row {wrong.expected.hex()}",
            found=f"the row {wrong.found.hex()}" if wrong.found else "no row",
            advice=ADVICE,
            first=wrong.index_first,
            last=wrong.index_last,
        )


def _offsets(first: int, end: int) -> str:
    if end <= first:
        return f"no messages, the next at offset {end}"
    return f"offset {first}" if end == first + 1 else f"offsets {first} to {end - 1}"
