"""Dispatches timed messages, on the leader (RocketMQ 5's ``TimerMessageStore``).

The dispatcher reads the present slot and delivers its messages in the order of time, then of
offset. The progress, in the state, is the last delivered message: all messages up to it are
delivered, and none behind it. This holds because no message is added for a past time, and no
delivery passes the time of a pending message (:mod:`broker.scheduled.in_flight_timers`).
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from functools import partial

from broker.delivery.message_reader import rows
from broker.scheduled.dispatcher import (
    DISPATCH_BYTES,
    Dispatcher,
    DispatcherContext,
    DueMessage,
    Queues,
)
from broker.scheduled.in_flight_timers import InFlightTimers
from broker.scheduled.slot_rows import SlotRows, TimedRow
from broker.scheduled.timer_wheel import (
    SLOT_MS,
    SLOTS,
    first_of_slot,
    queue_of,
    slot_of,
)
from broker.state.broker_state import TimerProgress
from broker.state.commands import Timer
from broker.state.recalled_messages import TimedKey
from store.index.consume_queue import ConsumeQueue
from store.message.scheduled_topics import TIMER_TOPIC

SCAN_ROWS = 2048
"""The rows of a slot that are read in one turn of the event loop."""

SLOTS_A_TURN = 256
"""The slots without a message that are skipped in one turn."""


class TimerDispatcher(Dispatcher):
    """Dispatches all timed messages while this node leads."""

    subject = "timed messages"

    def __init__(
        self,
        within: DispatcherContext,
        in_flight: InFlightTimers,
        recalling: Container[TimedKey],
    ) -> None:
        """``recalling``: messages with a recall in progress."""
        super().__init__(within)
        self._in_flight = in_flight
        self._recalling = recalling
        self._began = _key(self._machine.state.timer)
        """The progress of earlier leaders: they delivered no messages behind it."""
        self._restart_from_applied()

    def _restart_from_applied(self) -> None:
        self._progress = _key(self._machine.state.timer)
        """The time up to which messages are delivered or in progress."""
        self._slot = slot_of(self._progress[0])
        self._next_offset: int | None = None
        """The next row to read in the slot's queue; unknown before the first."""
        self._rows = SlotRows()
        """The next rows of the slot."""

    @property
    def progress(self) -> TimedKey:
        """The key up to which messages are delivered or in progress."""
        return self._progress

    def _advance_past(self, progress: TimedKey) -> None:
        self._progress = progress

    def _find(self) -> None:
        limit_ms = self._limit_ms()
        slots_left = SLOTS_A_TURN
        self._rows.drop_until(self._progress)
        while True:
            if not self._scan():
                self._look_soon()
                return
            if self._rows.is_cut and not self._rows:
                self._rows = SlotRows()
                self._next_offset = None
                continue
            if self._rows or self._slot >= slot_of(limit_ms):
                break
            if not slots_left:
                self._look_soon()
                return
            slots_left -= 1
            waiting = self._machine.state.timer.waiting
            self._slot = self._slot + 1 if waiting else slot_of(limit_ms)
            self._next_offset = None
        self._deliver_until(limit_ms)

    def _limit_ms(self) -> int:
        """The time up to which messages may be delivered now."""
        now_ms, first_ms = self._batcher.now_ms(), self._in_flight.first_ms()
        return now_ms if first_ms is None else min(now_ms, first_ms - 1)

    def _scan(self) -> bool:
        """Reads rows of the slot. Returns False if more rows remain than one turn may read."""
        queue = self._machine.queue(TIMER_TOPIC, queue_of(self._slot))
        if queue is None:
            return True
        if self._next_offset is None:
            self._next_offset = first_of_slot(queue, self._slot)
        first = max(self._next_offset, queue.first_offset)
        data = queue.read(first, SCAN_ROWS)
        progress = self._progress
        offset = first
        for offset, (position, size, deliver_ms) in enumerate(rows(data), first):
            if slot_of(deliver_ms) == self._slot and (deliver_ms, offset) > progress:
                self._rows.add(TimedRow(deliver_ms, offset, position, size))
        self._next_offset = offset + 1 if data else first
        return self._next_offset >= queue.end_offset

    def _is_recalled(self, key: TimedKey) -> bool:
        return key in self._recalling or key in self._machine.state.recalled

    def _overdue(self, due: DueMessage, own_ms: int) -> bool:
        return (own_ms, due.offset) > self._began

    def _deliver_until(self, limit_ms: int) -> None:
        """Delivers the messages that are due by ``limit_ms``, in the order of time."""
        due, size = list[TimedRow](), 0
        for timed in self._rows:
            size += timed.size
            if (
                timed.deliver_ms > limit_ms
                or len(due) == self._dispatch_messages
                or (due and size > DISPATCH_BYTES)
            ):
                break
            due.append(timed)
        queue_id = queue_of(self._slot)
        queue = self._machine.queue(TIMER_TOPIC, queue_id)
        if due and queue is not None:
            messages = [
                DueMessage(
                    queue, queue_id, timed.offset, timed.position, timed.size, timed.deliver_ms
                )
                for timed in due
            ]
            last = due[-1].key
            self._deliver(messages, Timer(*last, len(due)), partial(self._advance_past, last))
        elif self._rows or self._machine.state.timer.waiting:
            next_ms = (self._slot + 1) * SLOT_MS
            if self._rows:
                next_ms = next(iter(self._rows)).deliver_ms
            # A message that is due already waits for a pending one, whose end calls us.
            if not self._in_flight or next_ms > self._batcher.now_ms():
                self._look_at(next_ms)


def _key(of: TimerProgress) -> TimedKey:
    return of.deliver_ms, of.offset


def oldest_timer_position(machine: Queues) -> int | None:
    """The position of the first record that waits on the timer wheel, or None.

    In the present slot it may be a delivered one.
    """
    positions = [
        position
        for _, queue, offset, _ in undelivered_of_wheel(machine)
        for position, _, _ in rows(queue.read(offset, 1))
    ]
    return min(positions, default=None)


def undelivered_of_wheel(
    machine: Queues,
) -> Iterator[tuple[int, ConsumeQueue, int, tuple[int, int]]]:
    """For each queue of the wheel with waiting messages: its id, the queue, the first offset that
    waits, and a key (time, offset) up to which messages of the present slot are delivered."""
    timer = machine.state.timer
    if not timer.waiting:
        return
    for number in range(SLOTS):
        queue = machine.queue(TIMER_TOPIC, number)
        if queue is not None:
            yield number, queue, first_of_slot(queue, slot_of(timer.deliver_ms)), _key(timer)
