"""Transactions: each is published at most once, and only if its producer has committed it.

An acknowledged commit is published (D7). Brokers ask about one no more often than they may, under
every leader. They roll back by themselves only after so many checks, or after so long. An open one
is not removed, except from a full disk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from broker.state.commands import CheckTransaction, EndTransaction, Expire, decode_commands
from simulator.engine.violation import Violation
from simulator.faults.schedule import Action
from simulator.hosts.host import Host
from simulator.invariants.broker.batch_invariant import BatchInvariant
from simulator.invariants.broker.scheduled_messages import FILL_DISK
from simulator.workload.history import number_of
from simulator.workload.transaction_producer import TOPIC, TransactionHistory
from store.log.entry import Entry
from store.message.batch import Batch
from store.message.record import iter_records

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
CHECKS_MAX = 15
"""Of one transaction: what brokers are set to by default (docs/rocketmq.md)."""


class PublishedOnce(BatchInvariant):
    """Takes each committed entry apart once, at the first node that applies it."""

    def __init__(
        self, history: TransactionHistory, hosts: Sequence[Host], interval_ms: int
    ) -> None:
        """``interval_ms``: what brokers wait before they ask first, and between."""
        self.published: dict[int, int] = {}
        """By number: the index of the entry."""
        self._hosts = hosts
        self._patience_ms = (1 + CHECKS_MAX) * interval_ms
        self._latest_ms = 0.0
        """The time that any leader's clock may show. Some are a day ahead; the next leader goes on
        from there, half as fast as time, until its own clock is as far
        (``broker/group_commit/store_clock.py``).
        """
        self._latest_at = 0.0
        self._half: dict[int, tuple[int, int]] = {}
        """By position: number of the half message, and when it was stored."""
        self._checks: Counter[int] = Counter()
        self._checked_ms: dict[int, int] = {}
        """The time of the last check, by the clock of its broker."""
        self._apart_ms = interval_ms * 2 // 5
        self._open: dict[int, None] = {}
        self._disk_filled = False
        self._history = history
        history.committed = self._committed

    def acted(self, action: Action) -> None:
        """See :class:`Invariant`."""
        self._disk_filled |= action.name == FILL_DISK
        self._look_at_clocks(action.at)

    def committed_batch(self, host: Host, entry: Entry, batch: Batch) -> None:
        """See :class:`BatchInvariant`."""
        if any(run.topic == TOPIC for run in batch.runs):
            numbers = [
                number_of(record.body)
                for record in iter_records(batch.records)
                if record.topic == TOPIC
            ]
            self._add(host, entry.index, numbers)
        self._look_at_clocks(host.now)
        if any(run.topic == HALF_TOPIC for run in batch.runs):
            for record in iter_records(batch.records):
                if record.topic == HALF_TOPIC:
                    half = number_of(record.body), record.store_timestamp
                    self._half[record.position] = half
                    self._open[record.position] = None
        self._follow(host, batch, entry.index)

    def _look_at_clocks(self, now: float) -> None:
        clocks = [host.clock for host in self._hosts]
        passed_ms = 1000 * (now - self._latest_at) * max(clock.rate for clock in clocks)
        slow_ms = self._latest_ms + passed_ms / 2
        self._latest_ms = max(slow_ms, *(clock.wall_ms() for clock in clocks))
        self._latest_at = now

    def _follow(self, host: Host, batch: Batch, index: int) -> None:
        for command in decode_commands(batch.commands):
            match command:
                case CheckTransaction(_offset, position, now_ms):
                    host.coverage_mark("transaction asked about")
                    self._asked(position, now_ms)
                case EndTransaction(_offset, position):
                    self._open.pop(position, None)
                    self._ends(position, index)
                case Expire(end):
                    self._expires(end)
                case _:
                    pass

    def _expires(self, end: int) -> None:
        for position in [position for position in self._open if position < end]:
            del self._open[position]
            if not self._disk_filled:
                raise Violation(
                    f"transaction {self._half[position][0]} is open, and the log is removed up to "
                    f"{end}"
                )

    def _asked(self, position: int, now_ms: int) -> None:
        """A leader's clock that is ahead of its machine's runs half as fast."""
        self._checks[position] += 1
        apart_ms = now_ms - self._checked_ms.get(position, now_ms - self._apart_ms)
        self._checked_ms[position] = now_ms
        if self._checks[position] > CHECKS_MAX or apart_ms < self._apart_ms:
            raise Violation(
                f"transaction {self._half[position][0]} is asked about "
                f"{self._checks[position]} times, {apart_ms} ms after the last time"
            )

    def _ends(self, position: int, index: int) -> None:
        """If its producer has committed it, it is published in that entry, or given up as late as
        that may be."""
        number, stored_ms = self._half[position]
        if (
            self._history.outcomes[number]
            and self._history.positions.get(number) == position
            and number not in self.published
            and self._checks[position] < CHECKS_MAX
            and self._latest_ms - stored_ms < self._patience_ms
        ):
            raise Violation(
                f"transaction {number} is rolled back by entry {index}, and was to be committed"
            )

    def _add(self, host: Host, index: int, numbers: Sequence[int]) -> None:
        for number in numbers:
            first = self.published.setdefault(number, index)
            if first != index:
                raise Violation(
                    f"transaction {number} is published by entry {first}, and again by {index}"
                )
            if not self._history.outcomes[number]:
                raise Violation(f"transaction {number} is published, and was not committed")
            host.coverage_mark("transaction published")

    def _committed(self, number: int) -> None:
        if number not in self.published:
            raise Violation(f"transaction {number} is acknowledged as committed; nobody applied it")
