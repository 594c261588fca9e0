"""A group gets what its SQL92 expression selects, and nothing else (JMS 1.1, 3.8: selectors).

The numbers of the messages say what it wants, without the broker's filter. The rest counts as
delivered as soon as it is committed, so the check for skipped messages finds gaps here too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from simulator.engine.violation import Violation
from simulator.invariants.broker.batch_invariant import messages_of
from simulator.invariants.broker.no_message_skipped import NothingSkipped
from simulator.workload.history import Place, number_of
from store.log.entry import Entry
from store.message.batch import Batch
from store.message.record import MessageRecord

if TYPE_CHECKING:
    from simulator.hosts.host import Host


class OnlySelectedBySql92(NothingSkipped):
    """Follows the messages of one topic."""

    def __init__(self, group: str, topic: str, is_wanted: Callable[[int], bool]) -> None:
        super().__init__(group)
        self._topics = (topic,)
        self._is_wanted = is_wanted

    def delivered(self, consumer: str, place: Place, record: MessageRecord) -> None:
        """See :class:`~simulator.workload.history.Listener`."""
        if not self._is_wanted(number_of(record.body)):
            raise Violation(f"{consumer} was given {place}, which its expression does not select")
        super().delivered(consumer, place, record)

    def committed_batch(self, host: Host, entry: Entry, batch: Batch) -> None:
        """See :class:`BatchInvariant`."""
        for message in messages_of(entry, batch, self._topics):
            record = message.record
            if not self._is_wanted(number_of(record.body)):
                host.coverage_mark("message passed over by an expression")
                super().delivered("", message.place, record)
        super().committed_batch(host, entry, batch)
