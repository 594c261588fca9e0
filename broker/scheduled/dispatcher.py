"""Dispatches due messages, step by step: the common part for delay levels and timed messages.

A due message is stored again, in its real queue, in one entry with the command that records the
delivery. Both are committed or neither, so the next leader continues exactly where this one ended.

Steps are added one after the other, and several may wait to be committed. That is safe because a
step is never committed without those before it. If one fails, those behind it fail too, and the
dispatcher starts again from the applied state.

A loaded record must be due at the time in its row. Otherwise the row is rebuilt from the log and
read again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from broker.delivery.message_reader import LogRange, MessageReader, misleading_row, row_range
from broker.errors import REFUSALS
from broker.group_commit.batcher import Batcher
from broker.group_commit.pending_batch import QueueMessages
from broker.scheduled.republisher import republished_to_real_queue
from broker.scheduled.system_properties import REAL_QUEUE_ID, REAL_TOPIC
from broker.state.broker_state import BrokerState
from broker.state.commands import Command
from broker.state.recalled_messages import TimedKey
from dledger.errors import ProposeError
from store.errors import DerivedDamageError, DiskFullError, EntryTooLargeError, StoreError
from store.index.consume_queue import ConsumeQueue
from store.io.filesystem import Bytes
from store.message.record import MessageRecord, decode_record
from store.message.scheduled_topics import TIMER_TOPIC, row_code

DISPATCH_MESSAGES = 128
DISPATCH_BYTES = 1 << 20
"""The limit of one entry, so that it does not delay the event loop."""

DISPATCHES_MAX = 4
"""Pace: the steps of one kind that may wait to be committed."""

WAIT_SECONDS_MAX = 2.0
"""Pace: the longest wait in seconds without reading the wall clock, which may be set."""

RETRY_SECONDS_MIN = 0.1
RETRY_SECONDS_MAX = 2.0
"""Pace: the seconds between two tries to store due messages."""

_LEFT_OUT = {TIMER_TOPIC: (REAL_TOPIC, REAL_QUEUE_ID)}
"""The properties that are removed at the delivery. A timed message loses the names of its real
queue, as with RocketMQ 5; other messages keep all, as with RocketMQ 4.9."""

log = logging.getLogger(__name__)


class Queues(Protocol):
    """The part of :class:`~broker.state.state_machine.BrokerStateMachine` that is used here."""

    @property
    def state(self) -> BrokerState: ...

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue | None: ...


class DispatcherContext(NamedTuple):
    """The services that dispatchers use."""

    machine: Queues
    reader: MessageReader
    batcher: Batcher
    loop: asyncio.AbstractEventLoop
    fail: Callable[[BaseException], None]
    """Stops the node: it cannot read due messages, and another node may lead."""


class DueMessage(NamedTuple):
    """A due message: its queue and offset, and the time in its row."""

    queue: ConsumeQueue
    queue_id: int
    offset: int
    position: int
    size: int
    deliver_ms: int

    @property
    def range(self) -> LogRange:
        """The range of its record."""
        return row_range(self.queue, self.queue_id, self.offset, self.position, self.size)


class Dispatcher:
    """Delivers from some of the queues of scheduled messages, while this node leads.

    A subclass finds the due messages (:meth:`_find`).
    """

    subject = "waiting messages"

    def __init__(self, within: DispatcherContext) -> None:
        self._machine = within.machine
        self._reader = within.reader
        self._batcher = within.batcher
        self._loop = within.loop
        self._fail = within.fail
        self._timer: asyncio.Handle | None = None
        self._loading = False
        self._committing = 0
        self._failed = False
        self._stopped = False
        self._dispatch_messages = DISPATCH_MESSAGES
        self._retry_seconds = RETRY_SECONDS_MIN

    def look(self) -> None:
        """Delivers due messages, and schedules the next look."""
        if self._stopped or self._loading or self._failed or self._committing == DISPATCHES_MAX:
            return
        self._cancel()
        try:
            self._find()
        except (DerivedDamageError, DiskFullError) as lacking:
            self._try_again(f"cannot be found: {lacking}")
        except (StoreError, OSError) as error:
            self._fail(error)

    def arrived(self) -> None:
        """Looks again at the end of this turn, because something changed."""
        if not (self._stopped or self._loading or self._failed):
            self._look_soon()

    def stop(self) -> None:
        """Ends: this node leads no more."""
        self._stopped = True
        self._cancel()

    # --- for the subclass

    def _find(self) -> None:
        """Calls :meth:`_deliver` for due messages, or else a method to look again later; nothing if
        no message waits."""
        raise NotImplementedError

    def _restart_from_applied(self) -> None:
        """Sets the start of the next step from the applied state."""
        raise NotImplementedError

    def _deliver(
        self, due: Sequence[DueMessage], command: Command, added: Callable[[], None]
    ) -> None:
        """Delivers messages in one entry with ``command``. Calls ``added`` once they are in
        progress, then looks again."""
        self._loading = True
        self._reader.load([each.range for each in due], self._loaded(due, command, added))

    def _overdue(self, due: DueMessage, own_ms: int) -> bool:  # noqa: ARG002 - a subclass's
        """Whether a message that is due at ``own_ms``, before the time in its row, must be
        delivered now."""
        return False

    def _is_recalled(self, key: TimedKey) -> bool:  # noqa: ARG002 - a subclass's
        """Whether the message was recalled."""
        return False

    def _look_soon(self) -> None:
        self._cancel()
        self._timer = self._loop.call_soon(self.look)

    def _look_at(self, deliver_ms: int) -> None:
        """Looks again at this time."""
        self._look_in(max(deliver_ms - self._batcher.now_ms(), 1) / 1000)

    # --- one step

    def _loaded(
        self, due: Sequence[DueMessage], command: Command, added: Callable[[], None]
    ) -> Callable[[Sequence[Bytes], StoreError | None], None]:
        def loaded(records: Sequence[Bytes], error: StoreError | None) -> None:
            if self._stopped:
                return
            self._loading = False
            if self._failed:
                # An earlier step failed. The command of this one would count its messages, too.
                self._try_again("are not stored")
                return
            if error is not None:
                self._try_again(f"cannot be read: {error}")
                return
            try:
                messages = self._republished(due, records)
                self._batcher.add_in_one_entry(messages, (command,), self._delivered)
            except EntryTooLargeError as too_large:
                self._dispatch_messages = max(len(records) // 2, 1)
                self._try_again(f"do not fit together: {too_large}")
            except (StoreError, *REFUSALS) as refusal:
                self._try_again(f"cannot be stored: {refusal}")
            else:
                self._committing += 1
                added()
                self._look_soon()

        return loaded

    def _republished(
        self, due: Sequence[DueMessage], records: Sequence[Bytes]
    ) -> list[QueueMessages]:
        messages = []
        for each, data in zip(due, records, strict=True):
            record = decode_record(data)
            if self._is_recalled((self._checked_time(each, record), each.offset)):
                continue
            message = republished_to_real_queue(
                record, self._batcher.topic, _LEFT_OUT.get(record.topic, ())
            )
            if message is None:
                log.warning(
                    "the message at position %d has waited for a topic that is deleted",
                    record.position,
                )
            else:
                messages.append(message)
        return messages

    def _checked_time(self, due: DueMessage, record: MessageRecord) -> int:
        """When the message is due. Raises :class:`~store.errors.DerivedDamageError` if its row has
        another time, unless the row only delayed the message."""
        said_ms = due.deliver_ms
        own_ms = row_code(
            record.topic, record.queue_id, record.properties, record.store_timestamp, said_ms
        )
        if own_ms != said_ms:
            wrong = misleading_row(due.queue, due.offset)
            if own_ms > said_ms or not self._overdue(due, own_ms):
                raise wrong
            log.warning("a due message is late: %s", wrong)
        return own_ms

    def _delivered(self, error: ProposeError | None) -> None:
        self._committing -= 1
        if self._stopped:
            return
        if error is None:
            self._retry_seconds = RETRY_SECONDS_MIN  # even if the next step was refused
        if error is not None or self._failed:
            self._try_again(f"are not stored: {error}")
            return
        if not self._loading:
            self._look_soon()

    def _try_again(self, why: str) -> None:
        """Starts again, once the outcome of all steps is known."""
        if not self._failed:
            log.warning("%s that are due %s", self.subject, why)
        self._failed = True
        self._cancel()
        if self._committing == 0 and not self._loading:
            self._failed = False
            self._restart_from_applied()
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
