"""A group gets what its SQL92 expression selects, and nothing else (JMS 1.1, 3.8: selectors).

The numbers of the messages say what it wants, without the broker's filter. The rest counts as
delivered as soon as it is committed, so the check for skipped messages finds gaps here too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from simulator.engine.violation import Violation
from simulator.invariants.broker.no_message_skipped import NothingSkipped
from simulator.workload.history import Place, number_of
from store.log.entry import HEADER_SIZE, Entry, EntryKind
from store.message.batch import QUEUE_ROW, decode_batch
from store.message.record import MessageRecord, decode_record

if TYPE_CHECKING:
    from simulator.hosts.host import Host


class OnlySelectedBySql92(NothingSkipped):
    """Follows the messages of one topic."""

    def __init__(self, group: str, topic: str, is_wanted: Callable[[int], bool]) -> None:
        super().__init__(group)
        self._topic = topic
        self._is_wanted = is_wanted
        self._seen_index = -1

    def delivered(self, consumer: str, place: Place, record: MessageRecord) -> None:
        """See :class:`~simulator.workload.history.Listener`."""
        if not self._is_wanted(number_of(record.body)):
            raise Violation(f"{consumer} was given {place}, which its expression does not select")
        super().delivered(consumer, place, record)

    def applies(self, host: Host, entry: Entry, digest: bytes) -> None:
        """See :class:`Invariant`."""
        if entry.kind is EntryKind.DATA and entry.index > self._seen_index:
            self._seen_index = entry.index
            self._pass_over(host, entry)
        super().applies(host, entry, digest)

    def _pass_over(self, host: Host, entry: Entry) -> None:
        batch = decode_batch(entry.body)
        for run in batch.runs:
            if run.topic != self._topic:
                continue
            for number in range(run.count):
                at = (run.first_row + number) * QUEUE_ROW.size
                position, _size, _code = QUEUE_ROW.unpack_from(batch.rows, at)
                record = decode_record(batch.records, position - entry.position - HEADER_SIZE)
                if not self._is_wanted(number_of(record.body)):
                    host.coverage_mark("message passed over by an expression")
                    place = (run.topic, run.queue_id, run.first_offset + number)
                    super().delivered("", place, record)
