"""Taking what a producer sends that is not to be delivered at once: the rare way of a send."""

from __future__ import annotations

from collections.abc import Sequence

from broker.context import BrokerContext
from broker.group_commit.batcher import Batcher
from broker.group_commit.pending_batch import QueueMessages
from broker.ingest.deduplication import SendWaiter
from broker.limits import STATE
from broker.remoting.error_responses import REFUSALS
from broker.remoting.processors.send_message_header import (
    SendHeader,
    check_keys,
    checked_properties,
    is_half_message,
)
from broker.remoting.protocol.codes import ResponseCode
from broker.remoting.protocol.errors import RequestError
from broker.retry.retry_and_dead_letter import dead_letter, missing_retry_topics
from broker.scheduled.placement import Placement, scheduled_placement
from broker.state.commands import Command
from broker.topics_and_groups import HALF_TOPIC, RETRY_PREFIX, GroupConfig
from broker.transactions.half_message import half_message_placement
from store.errors import EntryTooLargeError
from store.io.filesystem import Bytes
from store.message.record import PendingMessage, make_pending_message, tag_and_keys
from store.message.scheduled_topics import SCHEDULED_TOPICS

_REPUBLISHED_TOPICS = SCHEDULED_TOPICS | {HALF_TOPIC}
REPUBLISH_OVERHEAD_BYTES = 1024
"""More than what an entry has beside a message that is delivered, and a longer topic."""


def check_republished_size(batcher: Batcher, message: PendingMessage) -> None:
    """Refuses what could be stored now but not once more, when it is delivered.

    Raises :class:`~store.errors.EntryTooLargeError`.
    """
    size, size_max = message.size + REPUBLISH_OVERHEAD_BYTES, batcher.request_bytes_max
    if size > size_max:
        raise EntryTooLargeError(size, size_max)


class MessageRouter:
    """Stages such messages where they wait."""

    def __init__(self, context: BrokerContext) -> None:
        self._batcher = context.batcher
        self._deduplicator = context.deduplicator
        self._machine = context.machine
        self._wall_clock = context.wall_clock
        self._scheduled_messages = context.scheduled_messages

    def route(
        self,
        header: SendHeader,
        queue_id: int,
        body: Bytes,
        born_host: bytes,
        *,
        waiter: SendWaiter,
        times_max: int = -1,
    ) -> None:
        """Raises as the staging of any message, and
        :class:`~broker.remoting.protocol.errors.RequestError` for a time that cannot be.

        ``times_max``: how often a message to a retry topic is tried, below 0 as its group says.
        """
        properties = checked_properties(header.properties)
        check_keys(tag_and_keys(properties)[1], len(properties))
        commands: Sequence[Command] = ()
        now_ms = self._scheduled_messages.now_ms()
        group = self._group_that_gave_up(header, times_max)
        if is_half_message(properties):
            place = self._half_message_placement(header, queue_id, properties)
        elif group is None:
            place = scheduled_placement(header.topic, queue_id, properties, now_ms)
        else:
            topic, place = dead_letter(group, properties)
            commands = missing_retry_topics(group, topic, self._batcher.topic, self._wall_clock())
        message = make_pending_message(
            place.topic,
            body,
            place.properties,
            flag=header.flag,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            born_host=born_host,
            reconsume_times=header.reconsume_times,
        )
        if place.topic in _REPUBLISHED_TOPICS:
            check_republished_size(self._batcher, message)
        if commands:
            self._batcher.add_in_one_entry(
                [QueueMessages(place.topic, place.queue_id, (message,), waiter)], commands
            )
        else:
            self._add(place, message, now_ms, waiter)

    def _add(
        self, place: Placement, message: PendingMessage, now_ms: int, waiter: SendWaiter
    ) -> None:
        if place.deliver_ms is None:
            self._deduplicator.add(place.topic, place.queue_id, (message,), waiter)
            return
        message = message._replace(tags_code=place.deliver_ms)
        tracked = self._scheduled_messages.tracked(place.deliver_ms, now_ms, waiter)
        try:
            self._deduplicator.add(place.topic, place.queue_id, (message,), tracked)
        except REFUSALS:
            self._scheduled_messages.in_flight.settled(place.deliver_ms)
            raise

    def _half_message_placement(
        self, header: SendHeader, queue_id: int, properties: bytes
    ) -> Placement:
        open_max = STATE.transactions_max
        if len(self._machine.state.transactions) >= open_max:
            raise RequestError(
                ResponseCode.SYSTEM_BUSY, f"{open_max} transactions are open, none may be added"
            )
        return half_message_placement(header.topic, queue_id, properties)

    def _group_that_gave_up(self, header: SendHeader, times_max: int) -> GroupConfig | None:
        """The group that has tried this message often enough.

        A client whose code 36 has failed sends the message to the retry topic by itself.
        """
        if not header.topic.startswith(RETRY_PREFIX):
            return None
        name = header.topic.removeprefix(RETRY_PREFIX)
        group = self._batcher.group(name)
        if group is None:
            raise RequestError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {name}"
            )
        times_max = group.retry_max_times if times_max < 0 else times_max
        return group if header.reconsume_times >= times_max else None
