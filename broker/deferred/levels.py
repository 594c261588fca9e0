"""Delivering the messages of one delay level, on the leader (``ScheduleMessageService``).

A queue of ``SCHEDULE_TOPIC_XXXX`` is in order of delivery, for all its messages wait equally long.
What is due of it is stored once more, for the queue that it was meant for, in one entry with the
command that moves the level's offset on: either both are committed or neither, so whoever leads
next goes on exactly where this leader ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from broker.commands import Schedule
from broker.deferred.republish import republished
from broker.gather import Gatherer
from broker.reader import MessageReader, Range, rows
from broker.refusals import REFUSALS
from broker.staging import Addressed
from broker.state import BrokerState
from dledger.errors import ProposeError
from store.consumequeue import ConsumeQueue
from store.deferred import SCHEDULE_TOPIC
from store.errors import StoreError
from store.filesystem import Bytes
from store.record import decode_record

STEP_MESSAGES = 128
STEP_BYTES = 1 << 20
"""What is delivered in one entry: as much as does not hold up the event loop."""

WAIT_SECONDS_MAX = 2.0
"""The wall clock may be set; so nothing is waited for without looking at it again."""

RETRY_SECONDS_MIN = 0.1
RETRY_SECONDS_MAX = 2.0

log = logging.getLogger(__name__)


class Queues(Protocol):
    """What is needed of :class:`~broker.machine.BrokerStateMachine`."""

    @property
    def state(self) -> BrokerState: ...

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue | None: ...


class LevelDelivery:
    """One level, for as long as this node leads."""

    def __init__(
        self,
        level: int,
        *,
        machine: Queues,
        reader: MessageReader,
        gatherer: Gatherer,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.level = level
        self._machine = machine
        self._reader = reader
        self._gatherer = gatherer
        self._loop = loop
        self._timer: asyncio.Handle | None = None
        self._delivering = False
        self._stopped = False
        self._retry_seconds = RETRY_SECONDS_MIN

    def look(self) -> None:
        """Delivers what is due, and comes back when more is."""
        if self._stopped or self._delivering:
            return
        self._cancel()
        queue = self._machine.queue(SCHEDULE_TOPIC, self.level - 1)
        if queue is None:
            return
        try:
            self._deliver_due(queue)
        except StoreError as error:
            self._try_again(f"cannot be found: {error}")

    def _deliver_due(self, queue: ConsumeQueue) -> None:
        offset = waiting_from(self._machine.state, queue, self.level)
        now_ms = self._gatherer.now_ms()
        due, size = list[Range](), 0
        for position, record_size, deliver_ms in rows(queue.read(offset, STEP_MESSAGES)):
            if deliver_ms > now_ms:
                if not due:
                    self._look_in(max(deliver_ms - now_ms, 1) / 1000)
                break
            size += record_size
            if due and size > STEP_BYTES:
                break
            due.append(Range(position, record_size))
        if due:
            self._delivering = True
            self._reader.load(due, self._loaded(offset + len(due)))

    def arrived(self) -> None:
        """A message was added to the queue; only where none waited has anybody to look."""
        if self._timer is None and not self._delivering:
            self._timer = self._loop.call_soon(self.look)

    def stop(self) -> None:
        """This node does not lead any more."""
        self._stopped = True
        self._cancel()

    # --- one step

    def _loaded(self, end: int) -> Callable[[Sequence[Bytes], StoreError | None], None]:
        def loaded(records: Sequence[Bytes], error: StoreError | None) -> None:
            if self._stopped:
                return
            if error is not None:
                self._try_again(f"cannot be read: {error}")
                return
            try:
                messages = self._republished(records)
                self._gatherer.add_together(messages, (Schedule(self.level, end),), self._delivered)
            except (StoreError, *REFUSALS) as refusal:
                self._try_again(f"cannot be stored: {refusal}")

        return loaded

    def _republished(self, records: Sequence[Bytes]) -> list[Addressed]:
        messages = []
        for data in records:
            record = decode_record(data)
            message = republished(record, self._gatherer.topic)
            if message is None:
                log.warning(
                    "the message at position %d has waited for a topic that is deleted",
                    record.position,
                )
            else:
                messages.append(message)
        return messages

    def _delivered(self, error: ProposeError | None) -> None:
        if self._stopped:
            return
        if error is not None:
            self._try_again(f"are not stored: {error}")
            return
        self._delivering = False
        self._retry_seconds = RETRY_SECONDS_MIN
        self.look()

    def _try_again(self, why: str) -> None:
        log.warning("due messages of delay level %d %s", self.level, why)
        self._delivering = False
        self._look_in(self._retry_seconds)
        self._retry_seconds = min(2 * self._retry_seconds, RETRY_SECONDS_MAX)

    # --- waiting

    def _look_in(self, seconds: float) -> None:
        self._cancel()
        self._timer = self._loop.call_later(min(seconds, WAIT_SECONDS_MAX), self.look)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def waiting_from(state: BrokerState, queue: ConsumeQueue, level: int) -> int:
    """The offset of the first message of a level that is not delivered."""
    return max(state.schedule.get(level, 0), queue.first_offset)
