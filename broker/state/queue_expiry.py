"""The first offsets of queues once the log below a position has expired.

They are part of the state, so they must be the same on every replica. They are looked up in the
ConsumeQueues. A row of an unsealed block counts only if its record has the same topic, queue and
offset. If rows are pending or do not count, the log itself is read.

One case is left. A replica with a corrupt newest checkpoint starts from the one before. Its log may
begin behind ``position``, because a later expiry has cut it. That expiry is applied again later.
Until then rows of expired records are trusted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from store.errors import DamagedError, DerivedDamageError, OutOfRangeError, StoreError
from store.index.consume_queue import ConsumeQueue
from store.log.entry import EntryKind
from store.message.batch import QUEUE_ROW, decode_batch
from store.message.record import RECORD_FIXED_SIZE, decode_record
from store.replica_reads import ReplicaReads

READ_BYTES = 1 << 20

_Queues: TypeAlias = dict[tuple[str, int], ConsumeQueue]
QueueFirsts: TypeAlias = list[tuple[ConsumeQueue, int]]
"""Queues, and the first offset of each."""


def first_offsets(
    queues: Iterable[tuple[str, int, ConsumeQueue]], position: int, log: ReplicaReads | None
) -> QueueFirsts:
    """For each queue (topic, id) the first offset whose record lies at ``position`` or above.

    At most two records of each queue are read, and the whole log from ``position`` on if a row is
    corrupt. Raises :class:`~store.errors.DerivedDamageError` if the log is damaged, too. Without a
    ``log`` the rows are trusted.
    """
    found: QueueFirsts = []
    doubtful: _Queues = {}
    for topic, queue_id, queue in queues:
        try:
            offset = queue.offset_at(position)
            if log is None or _is_proved(topic, queue_id, queue, offset, log):
                found.append((queue, offset))
                continue
        except (DamagedError, OutOfRangeError):
            if log is None:
                raise
        doubtful[topic, queue_id] = queue
    if log is not None and doubtful:
        try:
            first = _first_in_log(doubtful, position, log)
        except DamagedError as error:
            raise DerivedDamageError(error.path, error.position, error.reason, position) from error
        found += [
            (queue, first[key] if key in first else _first_in_memory(queue, position))
            for key, queue in doubtful.items()
        ]
    return found


def _is_proved(
    topic: str, queue_id: int, queue: ConsumeQueue, offset: int, log: ReplicaReads
) -> bool:
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
            except StoreError:
                return False
            said = record.topic, record.queue_id, record.queue_offset, record.position
            if said != (topic, queue_id, at, position):
                return False
    return True


def _first_in_log(
    queues: _Queues, position: int, log: ReplicaReads
) -> Mapping[tuple[str, int], int]:
    """The first offsets of these queues, read from the log as far as it is durable here."""
    first: dict[tuple[str, int], int] = {}
    try:
        last = log.confirmed_entry_at(log.synced_position - 1, log.last_index)
        index = log.confirmed_entry_at(max(position, log.first_position), last)
    except OutOfRangeError:
        return first  # nothing lies behind it yet
    while index <= last and len(first) < len(queues):
        for entry in log.read_entries(index, last, READ_BYTES):
            index = entry.index + 1
            if entry.kind is not EntryKind.DATA:
                continue
            batch = decode_batch(entry.body)
            for run in batch.runs:
                queue = queues.get((run.topic, run.queue_id))
                if queue is None or (run.topic, run.queue_id) in first:
                    continue
                rows = batch.rows[run.first_row * QUEUE_ROW.size :][: run.count * QUEUE_ROW.size]
                for offset, row in enumerate(QUEUE_ROW.iter_unpack(rows), run.first_offset):
                    if row[0] >= position and queue.first_offset <= offset < queue.end_offset:
                        first[run.topic, run.queue_id] = offset
                        break
    return first


def _first_in_memory(queue: ConsumeQueue, position: int) -> int:
    """The first offset whose row is only in memory; the end if there is none."""
    begin = max(queue.first_offset, queue.flushed_end)
    rows = queue.read(begin, queue.end_offset - begin)
    for offset, row in enumerate(QUEUE_ROW.iter_unpack(rows), begin):
        if row[0] >= position:
            return offset
    return queue.end_offset
