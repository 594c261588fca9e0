"""The first offsets of queues once the log below a position has expired.

They are part of the state, so they must be the same on every replica. They are looked up in the
ConsumeQueues. A row of an unsealed block counts only if its record has the same topic, queue and
offset. If rows are pending or do not count, the log itself is read.

One case is left. A replica with a corrupt newest checkpoint starts from the one before. Its log may
begin behind ``position``, because a later expiry has cut it. That expiry is applied again later.
Until then rows of expired records are trusted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from dledger.node.state_machine import LongReadError
from store.errors import CorruptRecordError, DamagedError, DerivedDamageError, OutOfRangeError
from store.index.consume_queue import ConsumeQueue
from store.log.entry import EntryKind
from store.message.batch import QUEUE_ROW, Batch, decode_batch
from store.message.record import RECORD_FIXED_SIZE, decode_record
from store.replica_reads import ReplicaReads

READ_BYTES = 1 << 20

_Queues: TypeAlias = dict[tuple[str, int], ConsumeQueue]
QueueFirsts: TypeAlias = list[tuple[ConsumeQueue, int]]
"""Queues, and the first offset of each."""


class LogSearch:
    """Looks in the log for the first offsets of queues whose rows are in doubt.

    It may have to read all of the log, so it reads in pieces, off the event loop. Queues do not
    change meanwhile, but a checkpoint may write rows to the disk.
    """

    def __init__(self, queues: _Queues, position: int, log: ReplicaReads) -> None:
        self._position = position
        self._log = log
        self._bounds = {
            key: (queue.first_offset, queue.end_offset) for key, queue in queues.items()
        }
        self._left = set(queues)
        """The queues that were not found in the log yet."""
        self._next, self._last = 0, -1
        """The entries to read; none before the first piece."""
        self.first = {key: _first_in_memory(queue, position) for key, queue in queues.items()}
        """The first offsets: by the rows that are only in memory, until the log has others."""
        self.ended = False

    def covers(self, queues: _Queues) -> bool:
        """Whether all these queues are looked for."""
        return queues.keys() <= self._bounds.keys()

    def read(self) -> bool:
        """Reads the next piece of the log, as far as it is durable here; returns whether the search
        has ended. Any thread.

        Raises :class:`~store.errors.DerivedDamageError` if the log is damaged there.
        """
        try:
            self.ended = not self._begin() or not self._read_entries()
        except DamagedError as error:
            at = error.path, error.position, error.reason, self._position
            raise DerivedDamageError(*at) from error
        except OutOfRangeError:
            self._last = -1  # the end of the log was cut, or its beginning
        return self.ended

    def _begin(self) -> bool:
        """Returns whether there are entries to read."""
        if self._last >= 0:
            return True
        log = self._log
        begin, end = max(self._position, log.first_position), log.synced_position
        if begin >= end:
            return False
        last = log.entry_at(end - 1, log.last_index)
        self._next = log.entry_at(begin, last)
        self._last = last
        return True

    def _read_entries(self) -> bool:
        """Returns whether there is more to read."""
        for entry in self._log.read_entries(self._next, self._last, READ_BYTES):
            self._next = entry.index + 1
            if entry.kind is EntryKind.DATA:
                self._take(decode_batch(entry.body))
        return bool(self._left) and self._next <= self._last

    def _take(self, batch: Batch) -> None:
        for run in batch.runs:
            key = (run.topic, run.queue_id)
            if key not in self._left:
                continue
            begin, end = self._bounds[key]
            rows = batch.rows_of(run)
            for offset, row in enumerate(QUEUE_ROW.iter_unpack(rows), run.first_offset):
                if row[0] >= self._position and begin <= offset < end:
                    self.first[key] = offset
                    self._left.remove(key)
                    break


def first_offsets(
    queues: Iterable[ConsumeQueue],
    position: int,
    log: ReplicaReads | None,
    searches: dict[int, LogSearch],
) -> QueueFirsts:
    """For each queue the first offset whose record lies at ``position`` or above.

    At most two records of each queue are read. If rows are in doubt, the log must be searched from
    ``position`` on: :class:`~dledger.node.state_machine.LongReadError` is raised, and ``searches``
    has the search, by position, for the next try. Without a ``log`` the rows are trusted.
    """
    found: QueueFirsts = []
    doubtful: _Queues = {}
    for queue in queues:
        try:
            offset = queue.offset_at(position)
            if log is None or _is_proved(queue, offset, log):
                found.append((queue, offset))
                continue
        except (DamagedError, OutOfRangeError):
            if log is None:
                raise
        doubtful[queue.topic, queue.queue_id] = queue
    if log is None or not doubtful:
        return found
    search = searches.get(position)
    if search is None or not search.covers(doubtful):
        search = searches[position] = LogSearch(doubtful, position, log)
    if not search.ended:
        raise LongReadError(search.read)
    return found + [(queue, search.first[key]) for key, queue in doubtful.items()]


def _is_proved(queue: ConsumeQueue, offset: int, log: ReplicaReads) -> bool:
    """Whether the row of the offset and the one before are sealed, or agree with their records."""
    for at in (offset - 1, offset):
        if queue.first_offset <= at < queue.flushed_end and not queue.is_sealed(at):
            position, size, _code = QUEUE_ROW.unpack(queue.read(at, 1))
            if position < 0 or size < RECORD_FIXED_SIZE:
                return False
            if position + size <= log.first_position:
                continue
            try:
                record = decode_record(log.read(position, size), 0)
            except (CorruptRecordError, DamagedError, OutOfRangeError):
                return False
            said = record.topic, record.queue_id, record.queue_offset, record.position
            if said != (queue.topic, queue.queue_id, at, position):
                return False
    return True


def _first_in_memory(queue: ConsumeQueue, position: int) -> int:
    """The first offset whose row is only in memory; the end if there is none."""
    begin = max(queue.first_offset, queue.flushed_end)
    rows = queue.read(begin, queue.end_offset - begin)
    for offset, row in enumerate(QUEUE_ROW.iter_unpack(rows), begin):
        if row[0] >= position:
            return offset
    return queue.end_offset
