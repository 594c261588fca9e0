"""Transactions, as their producers see them: each is published once at most, and only if its
producer has decided to commit it; what a producer was told to be committed is published (D7)."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.host import Host
from simulator.invariants.base import Invariant
from simulator.violation import Violation
from simulator.workload.history import number_of
from simulator.workload.paying import TOPIC, PayingHistory
from store.batch import decode_batch
from store.entry import Entry, EntryKind
from store.record import iter_records


class PublishedOnce(Invariant):
    """Takes each committed entry apart once, when the first node applies it."""

    def __init__(self, history: PayingHistory) -> None:
        self.published: dict[int, int] = {}
        """By number: the index of the entry."""
        self._history = history
        self._last_index = -1
        history.committed = self._committed

    def applies(self, host: Host, entry: Entry, _digest: bytes) -> None:
        """See :class:`Invariant`."""
        if entry.index <= self._last_index:
            return
        self._last_index = entry.index
        if entry.kind is not EntryKind.DATA:
            return
        batch = decode_batch(entry.body)
        if any(run.topic == TOPIC for run in batch.runs):
            numbers = [
                number_of(record.body)
                for record in iter_records(batch.records)
                if record.topic == TOPIC
            ]
            self._add(host, entry.index, numbers)

    def _add(self, host: Host, index: int, numbers: Sequence[int]) -> None:
        for number in numbers:
            first = self.published.setdefault(number, index)
            if first != index:
                raise Violation(
                    f"transaction {number} is published by entry {first}, and again by {index}"
                )
            if not self._history.outcomes[number]:
                raise Violation(f"transaction {number} is published, and was not committed")
            host.mark("transaction published")

    def _committed(self, number: int) -> None:
        if number not in self.published:
            raise Violation(f"transaction {number} was told to be committed; nobody applied it")
