"""Delivering what is due, step by step: what all that deliver waiting messages have in common.

What is due is stored once more, for the queue that it was meant for, in one entry with the command
that says so: either both are committed or neither, so whoever leads next goes on exactly where this
leader ended. One step is under way at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from broker.commands import Command
from broker.deferred.republish import republished
from broker.gather import Gatherer
from broker.reader import MessageReader, Range
from broker.refusals import REFUSALS
from broker.staging import Addressed
from broker.state import BrokerState
from dledger.errors import ProposeError
from store.consumequeue import ConsumeQueue
from store.errors import EntryTooLargeError, StoreError
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


class Surroundings(NamedTuple):
    """With what a delivery works."""

    machine: Queues
    reader: MessageReader
    gatherer: Gatherer
    loop: asyncio.AbstractEventLoop
    fail: Callable[[BaseException], None]
    """Stops the node: it cannot read what it has to deliver, and another may lead."""


class Delivering:
    """Delivers from some of the queues in which messages wait, for as long as this node leads.

    A subclass finds what is due (:meth:`_find`).
    """

    what = "waiting messages"

    def __init__(self, within: Surroundings) -> None:
        self._machine = within.machine
        self._reader = within.reader
        self._gatherer = within.gatherer
        self._loop = within.loop
        self._fail = within.fail
        self._timer: asyncio.Handle | None = None
        self._delivering = False
        self._stopped = False
        self._step_messages = STEP_MESSAGES
        self._retry_seconds = RETRY_SECONDS_MIN

    def look(self) -> None:
        """Delivers what is due, and comes back when more is."""
        if self._stopped or self._delivering:
            return
        self._cancel()
        try:
            self._find()
        except (StoreError, OSError) as error:
            self._fail(error)

    def arrived(self) -> None:
        """Something has changed for which nobody may be waiting: looks at the end of this turn."""
        if not self._delivering and not self._stopped:
            self._look_soon()

    def stop(self) -> None:
        """This node does not lead any more."""
        self._stopped = True
        self._cancel()

    # --- for the subclass

    def _find(self) -> None:
        """Calls :meth:`_deliver` where something is due, else one of those below, or nothing
        where nothing waits."""
        raise NotImplementedError

    def _deliver(self, due: Sequence[Range], command: Command) -> None:
        """Delivers these records in one entry with ``command``, then looks again."""
        self._delivering = True
        self._reader.load(due, self._loaded(command))

    def _look_soon(self) -> None:
        self._cancel()
        self._timer = self._loop.call_soon(self.look)

    def _look_at(self, deliver_ms: int) -> None:
        """Looks again when this time has come."""
        self._look_in(max(deliver_ms - self._gatherer.now_ms(), 1) / 1000)

    # --- one step

    def _loaded(self, command: Command) -> Callable[[Sequence[Bytes], StoreError | None], None]:
        def loaded(records: Sequence[Bytes], error: StoreError | None) -> None:
            if self._stopped:
                return
            if error is not None:
                self._try_again(f"cannot be read: {error}")
                return
            try:
                messages = self._republished(records)
                self._gatherer.add_together(messages, (command,), self._delivered)
            except EntryTooLargeError as too_large:
                self._step_messages = max(len(records) // 2, 1)
                self._try_again(f"do not fit together: {too_large}")
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
        log.warning("%s that are due %s", self.what, why)
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
