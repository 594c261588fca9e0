"""The messages of one producer that two broker groups store.

Each stores a message once. Both have it only if its producer may turn to the other group after a
failed try, as RocketMQ's do. A message for a named queue stays there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.engine.violation import Violation
from simulator.invariants.invariant import Invariant
from simulator.workload.history import History, Sent, number_of
from store.log.entry import Entry, EntryKind
from store.message.batch import decode_batch
from store.message.record import iter_records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simulator.hosts.host import Host


class StoredByOneGroup(Invariant):
    """Remembers which group has which message."""

    def __init__(self, history: History, topics: Sequence[str]) -> None:
        self._history = history
        self._topics = topics
        self._groups: dict[int, str] = {}
        self._last_index: dict[str, int] = {}

    def applies(self, host: Host, entry: Entry, _digest: bytes) -> None:
        """See :class:`Invariant`."""
        group = host.group_name
        if entry.index <= self._last_index.get(group, -1) or entry.kind is not EntryKind.DATA:
            return
        self._last_index[group] = entry.index
        batch = decode_batch(entry.body)
        if not any(run.topic in self._topics for run in batch.runs):
            return
        for record in iter_records(batch.records):
            if record.topic in self._topics:
                self._add(host, group, self._history.sent[number_of(record.body)])

    def _add(self, host: Host, group: str, sent: Sent) -> None:
        first = self._groups.setdefault(sent.number, group)
        if first == group:
            return
        if sent.lane:
            raise Violation(
                f"message {sent.number} is stored by {group} and by {first}, "
                f"and its producer has named the queue"
            )
        host.coverage_mark("message stored by both groups")
