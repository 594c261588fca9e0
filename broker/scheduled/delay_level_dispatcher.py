"""Dispatches the messages of one delay level, on the leader (``ScheduleMessageService``).

All messages of a queue of ``SCHEDULE_TOPIC_XXXX`` wait equally long, so the queue is in the order
of delivery.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from broker.delivery.message_reader import rows
from broker.scheduled.dispatcher import (
    DISPATCH_BYTES,
    Dispatcher,
    DispatcherContext,
    DueMessage,
    Queues,
)
from broker.state.broker_state import BrokerState
from broker.state.commands import Schedule
from store.index.consume_queue import ConsumeQueue
from store.message.scheduled_topics import LEVEL_MAX, SCHEDULE_TOPIC


class DelayLevelDispatcher(Dispatcher):
    """Dispatches one level while this node leads."""

    def __init__(self, level: int, within: DispatcherContext) -> None:
        super().__init__(within)
        self.level = level
        self.subject = f"messages of delay level {level}"
        self._offset = 0
        """The next offset to deliver: all messages before it are in progress."""

    def arrived(self) -> None:
        """A message was added. If others wait, nothing is to do: it waits behind them."""
        if self._timer is None:
            super().arrived()

    def _find(self) -> None:
        queue_id = self.level - 1
        queue = self._machine.queue(SCHEDULE_TOPIC, queue_id)
        if queue is None:
            return
        offset = max(self._offset, first_undelivered_offset(self._machine.state, queue, self.level))
        now_ms = self._batcher.now_ms()
        due, size = list[DueMessage](), 0
        for position, record_size, deliver_ms in rows(queue.read(offset, self._dispatch_messages)):
            if deliver_ms > now_ms:
                if not due:
                    self._look_at(deliver_ms)
                break
            size += record_size
            if due and size > DISPATCH_BYTES:
                break
            due.append(
                DueMessage(queue, queue_id, offset + len(due), position, record_size, deliver_ms)
            )
        if due:
            end = offset + len(due)
            self._deliver(due, Schedule(self.level, end), partial(self._advance_to, end))

    def _restart_from_applied(self) -> None:
        self._advance_to(0)

    def _advance_to(self, offset: int) -> None:
        self._offset = offset


def first_undelivered_offset(state: BrokerState, queue: ConsumeQueue, level: int) -> int:
    """The offset of the first undelivered message of a level."""
    return max(state.schedule.get(level, 0), queue.first_offset)


def undelivered_of_levels(machine: Queues) -> Iterator[tuple[int, ConsumeQueue, int]]:
    """Each delay level with waiting messages, its queue, and the offset of the first of them."""
    for level in range(1, LEVEL_MAX + 1):
        queue = machine.queue(SCHEDULE_TOPIC, level - 1)
        if queue is not None:
            offset = first_undelivered_offset(machine.state, queue, level)
            if offset < queue.end_offset:
                yield level, queue, offset
