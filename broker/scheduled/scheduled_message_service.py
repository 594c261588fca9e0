"""All dispatchers of a leader, and the part of the log that they need."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from broker.delivery.message_reader import MessageReader, rows
from broker.errors import Refusal
from broker.group_commit.batcher import Batcher
from broker.group_commit.pending_batch import SendWaiter
from broker.group_commit.settling_waiter import SettlingWaiter
from broker.scheduled.delay_level_dispatcher import DelayLevelDispatcher, first_undelivered_offset
from broker.scheduled.dispatcher import DispatcherContext
from broker.scheduled.in_flight_timers import InFlightTimers
from broker.scheduled.timer_dispatcher import TimerDispatcher, oldest_timer_position
from broker.scheduled.timer_wheel import slot_of
from broker.state.commands import Timer
from broker.state.recalled_messages import TimedKey
from broker.state.state_machine import BrokerStateMachine
from dledger.node.state_machine import Leadership
from store.errors import DerivedDamageError
from store.message.batch import Batch
from store.message.scheduled_topics import (
    LEVEL_MAX,
    SCHEDULE_TOPIC,
    SCHEDULED_TOPICS,
    TIMER_TOPIC,
)

log = logging.getLogger(__name__)


class ScheduledMessageService:
    """Delivers scheduled messages while this node is the leader."""

    def __init__(
        self,
        *,
        machine: BrokerStateMachine,
        reader: MessageReader,
        batcher: Batcher,
        loop: asyncio.AbstractEventLoop,
        fail: Callable[[BaseException], None],
    ) -> None:
        self._within = DispatcherContext(machine, reader, batcher, loop, fail)
        self.in_flight = InFlightTimers()
        """Pending timed messages."""
        self.recalling: dict[TimedKey, list[Callable[[Refusal | None], None]]] = {}
        """Timed messages with a recall in progress, and the waiters for it."""
        self.in_flight.on_settled = self._settled
        self._term: int | None = None
        """The term in which this node serves."""
        self._levels: list[DelayLevelDispatcher] = []
        self._timers: TimerDispatcher | None = None

    def leadership_changed(self, leadership: Leadership) -> None:
        """A new term starts from the applied state."""
        term = leadership.term if leadership.serving else None
        if term == self._term:
            return
        self.stop()
        self._term = term
        if term is None:
            return
        self._levels = [
            DelayLevelDispatcher(level, self._within) for level in range(1, LEVEL_MAX + 1)
        ]
        self._timers = TimerDispatcher(self._within, self.in_flight, self.recalling)
        for each in (*self._levels, self._timers):
            each.arrived()

    def batch_arrived(self, batch: Batch) -> None:
        """The messages of an entry were added to their queues; some may be scheduled ones."""
        if SCHEDULED_TOPICS.isdisjoint(batch.topics):
            return
        for run in batch.runs:
            if run.topic == SCHEDULE_TOPIC and run.queue_id < len(self._levels):
                self._levels[run.queue_id].arrived()
            elif run.topic == TIMER_TOPIC:
                self._settled()

    def _settled(self) -> None:
        if self._timers is not None:
            self._timers.arrived()

    def now_ms(self) -> int:
        """The time up to which messages are due: at least the last time of this leader's clock, and
        the time of the last delivered message."""
        return max(self._within.batcher.now_ms(), self._within.machine.state.timer.deliver_ms)

    def is_over(self, key: TimedKey) -> bool:
        """Whether a timed message is delivered, is being delivered, or was skipped for good."""
        return self._timers is None or key <= self._timers.progress

    def tracked(self, deliver_ms: int, now_ms: int, waiter: SendWaiter) -> SettlingWaiter:
        """The waiter for a timed message, instead of ``waiter``.

        ``now_ms`` is the time at which the message was found to be due later. If no message waits,
        the progress first moves to this time, so the next leader need not search the time before
        it. Raises as :meth:`~broker.group_commit.batcher.Batcher.add_command`.
        """
        timer = self._within.machine.state.timer
        if not (timer.waiting or self.in_flight) and slot_of(timer.deliver_ms) < slot_of(now_ms):
            self._within.batcher.add_command(Timer(now_ms, -1, 0))
        return self.in_flight.tracked(deliver_ms, waiter)

    def stop(self) -> None:
        """Stops all deliveries."""
        self._term = None
        for each in self._levels:
            each.stop()
        self._levels = []
        if self._timers is not None:
            self._timers.stop()
            self._timers = None

    def oldest_needed_position(self) -> int | None:
        """The position of the first record that waits, or None."""
        try:
            return min(self._oldest_positions(), default=None)
        except DerivedDamageError as damage:
            # Nothing expires before the rows are rebuilt.
            log.warning("keeping the log: %s", damage)
            return 0

    def _oldest_positions(self) -> list[int]:
        machine = self._within.machine
        timed = oldest_timer_position(machine)
        positions = [] if timed is None else [timed]
        for level in range(1, LEVEL_MAX + 1):
            queue = machine.queue(SCHEDULE_TOPIC, level - 1)
            if queue is not None:
                offset = first_undelivered_offset(machine.state, queue, level)
                positions += [position for position, _, _ in rows(queue.read(offset, 1))]
        return positions
