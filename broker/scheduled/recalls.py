"""Recalls of timed messages, on the leader (``RecallMessageProcessor``).

A recall is a command in the log. The leader proposes it only while the message is neither delivered
nor being delivered, and skips the message from that moment on
(:mod:`broker.scheduled.timer_dispatcher`). So a message is either recalled or delivered, never
both.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from broker.delivery.message_lookup import MessageLookup
from broker.errors import (
    REFUSALS,
    NothingToRecallError,
    Refusal,
    UnavailableError,
    UnknownTopicError,
    unavailable,
)
from broker.group_commit.batcher import Batcher
from broker.limits import STATE
from broker.scheduled.recall_handle import RecallHandle, parse_recall_handle
from broker.scheduled.scheduled_message_service import ScheduledMessageService
from broker.scheduled.system_properties import REAL_TOPIC
from broker.state.commands import Recall
from broker.state.recalled_messages import TimedKey
from broker.state.state_machine import BrokerStateMachine
from dledger.errors import BusyError
from store.errors import OutOfRangeError, StoreError
from store.io.filesystem import Bytes
from store.message.properties import UNIQUE_KEY, find_property
from store.message.record import MessageRecord, decode_record
from store.message.scheduled_topics import TIMER_TOPIC, row_code

Recalled = Callable[[str, Refusal | None], None]
"""Called once: with the message id of the recalled message, or with the refusal."""


class Recalls:
    """Recalls messages while this node is the leader."""

    def __init__(
        self,
        *,
        machine: BrokerStateMachine,
        batcher: Batcher,
        lookup: MessageLookup,
        scheduled_messages: ScheduledMessageService,
        known_by_all: Callable[[], bool],
        broker_name: str,
    ) -> None:
        """``known_by_all``: whether every member knows the command."""
        self._machine = machine
        self._batcher = batcher
        self._lookup = lookup
        self._scheduled_messages = scheduled_messages
        self._known_by_all = known_by_all
        self._broker_name = broker_name

    def recall(self, topic: str, handle: str, done: Recalled) -> None:
        """Recalls the message of a handle. A second recall succeeds too, because the first answer
        may have been lost. It writes nothing: no quota counts recalls, so a message has one entry.

        Raises :class:`~broker.errors.RecallHandleError` for a handle of another topic,
        :class:`~broker.errors.UnknownTopicError`, :class:`~broker.errors.UnavailableError` and
        :class:`~dledger.errors.NotLeaderError`. ``done`` gets
        :class:`~broker.errors.NothingToRecallError` if no such message waits.
        """
        self._check_possible()
        if self._batcher.topic(topic) is None:
            raise UnknownTopicError(f"the topic {topic} does not exist")
        named, position = parse_recall_handle(handle, topic, self._broker_name)

        def loaded(data: Bytes, error: StoreError | None) -> None:
            try:
                if error is not None:
                    raise error
                self._recall(named, decode_record(data), done)
            except OutOfRangeError:
                done("", NothingToRecallError("the message no longer exists"))
            except REFUSALS as refusal:
                done("", refusal)
            except StoreError as fault:
                done("", unavailable("the message cannot be read now", fault))

        self._lookup.record(position, loaded)

    def _check_possible(self) -> None:
        self._batcher.check_serving()
        if not self._known_by_all():
            raise UnavailableError(
                "recalls need a newer program on all members of the broker group"
            )

    def _recall(self, named: RecallHandle, record: MessageRecord, done: Recalled) -> None:
        self._check_possible()  # the members may be others since the request came
        if not _is_named(record, named):
            raise NothingToRecallError("no message waits for this recall handle")
        key = _key(record)
        if self._scheduled_messages.is_over(key):
            raise NothingToRecallError("the message has been delivered, or its time has passed")
        recalled = self._machine.state.recalled
        if key in recalled:
            done(named.message_id, None)
            return
        recalling = self._scheduled_messages.recalling
        waiting = recalling.get(key)
        if waiting is not None:
            waiting.append(partial(done, named.message_id))
            return
        if len(recalled) + len(recalling) >= STATE.recalled_max:
            raise BusyError(len(recalled), STATE.recalled_max, "recalled messages wait")
        self._batcher.add_command(Recall(*key), partial(self._settled, key))
        recalling[key] = [partial(done, named.message_id)]

    def _settled(self, key: TimedKey, error: Refusal | None) -> None:
        """The command is applied or refused."""
        for told in self._scheduled_messages.recalling.pop(key):
            told(error)


def _key(record: MessageRecord) -> TimedKey:
    properties, stored_ms = record.properties, record.store_timestamp
    deliver_ms = row_code(record.topic, record.queue_id, properties, stored_ms, 0)
    return deliver_ms, record.queue_offset


def _is_named(record: MessageRecord, named: RecallHandle) -> bool:
    return (
        record.topic == TIMER_TOPIC
        and find_property(record.properties, REAL_TOPIC) == named.topic.encode()
        and find_property(record.properties, UNIQUE_KEY) == named.message_id.encode()
    )
