"""What checks that follow the committed log have in common: each batch once, and its messages."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, NamedTuple

from simulator.invariants.invariant import Invariant
from store.log.entry import HEADER_SIZE, Entry, EntryKind
from store.message.batch import QUEUE_ROW, Batch, decode_batch
from store.message.record import MessageRecord, decode_record

if TYPE_CHECKING:
    from simulator.hosts.host import Host
    from simulator.workload.history import Place


class BatchInvariant(Invariant):
    """Hears of each entry with a batch once, when the first host applies it."""

    _last_index = -1

    def applies(self, host: Host, entry: Entry, _digest: bytes) -> None:
        """See :class:`Invariant`."""
        if entry.kind is EntryKind.DATA and entry.index > self._last_index:
            self._last_index = entry.index
            self.committed_batch(host, entry, decode_batch(entry.body))

    def committed_batch(self, host: Host, entry: Entry, batch: Batch) -> None:
        """``host`` is the first that applies the entry."""
        raise NotImplementedError


class LoggedMessage(NamedTuple):
    """A message of a batch, with the fields of its row and the bytes of its record."""

    place: Place
    position: int
    tags_code: int
    data: bytes

    @property
    def record(self) -> MessageRecord:
        return decode_record(self.data)


def messages_of(entry: Entry, batch: Batch, topics: Collection[str]) -> Iterator[LoggedMessage]:
    """Those of the batch that lie in queues of these topics, in the order of the log."""
    for run in batch.runs:
        if run.topic not in topics:
            continue
        for number in range(run.row_count):
            at = (run.first_row + number) * QUEUE_ROW.size
            position, size, tags_code = QUEUE_ROW.unpack_from(batch.rows, at)
            start = position - entry.position - HEADER_SIZE
            place = (run.topic, run.queue_id, run.first_offset + number)
            yield LoggedMessage(
                place, position, tags_code, bytes(batch.records[start : start + size])
            )
