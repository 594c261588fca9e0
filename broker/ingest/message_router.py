"""Taking what a producer sends that is not to be delivered at once: the rare way of a send."""

from __future__ import annotations

from collections.abc import Sequence

from broker.context import BrokerContext
from broker.group_commit.batcher import Gatherer
from broker.group_commit.pending_batch import Addressed
from broker.ingest.deduplication import Sender
from broker.limits import STATE
from broker.remoting.error_responses import REFUSALS
from broker.remoting.protocol.codes import ResponseCode
from broker.remoting.protocol.errors import RequestError
from broker.remoting.protocol.send_message_header import (
    SendHeader,
    check_keys,
    checked_properties,
    is_half_message,
)
from broker.retry.retry_and_dead_letter import dead_letter, topics_for_return
from broker.scheduled.placement import Waiting, waiting_place
from broker.state.commands import Command
from broker.topics_and_groups import HALF_TOPIC, RETRY_PREFIX, GroupConfig
from broker.transactions.half_message import half_place
from store.errors import EntryTooLargeError
from store.io.filesystem import Bytes
from store.message.record import StagedMessage, stage_message, tag_and_keys
from store.message.scheduled_topics import DEFERRED_TOPICS

_STORED_TWICE = DEFERRED_TOPICS | {HALF_TOPIC}
DELIVERY_BYTES = 1024
"""More than what an entry has beside a message that is delivered, and a longer topic."""


def check_delivery(gatherer: Gatherer, message: StagedMessage) -> None:
    """Refuses what could be stored now but not once more, when it is delivered.

    Raises :class:`~store.errors.EntryTooLargeError`.
    """
    size, size_max = message.size + DELIVERY_BYTES, gatherer.request_bytes_max
    if size > size_max:
        raise EntryTooLargeError(size, size_max)


class DeferredSend:
    """Stages such messages where they wait."""

    def __init__(self, context: BrokerContext) -> None:
        self._gatherer = context.gatherer
        self._resent = context.resent
        self._machine = context.machine
        self._wall_clock = context.wall_clock
        self._delivery = context.delivery

    def stage(
        self,
        header: SendHeader,
        queue_id: int,
        body: Bytes,
        born_host: bytes,
        *,
        waiter: Sender,
        times_max: int = -1,
    ) -> None:
        """Raises as the staging of any message, and
        :class:`~broker.remoting.protocol.errors.RequestError` for a time that cannot be.

        ``times_max``: how often a message to a retry topic is tried, below 0 as its group says.
        """
        properties = checked_properties(header.properties)
        check_keys(tag_and_keys(properties)[1], len(properties))
        commands: Sequence[Command] = ()
        now_ms = self._delivery.now_ms()
        group = self._given_up(header, times_max)
        if is_half_message(properties):
            place = self._half_place(header, queue_id, properties)
        elif group is None:
            place = waiting_place(header.topic, queue_id, properties, now_ms)
        else:
            topic, place = dead_letter(group, properties)
            commands = topics_for_return(group, topic, self._gatherer.topic, self._wall_clock())
        message = stage_message(
            place.topic,
            body,
            place.properties,
            flag=header.flag,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            born_host=born_host,
            reconsume_times=header.reconsume_times,
        )
        if place.topic in _STORED_TWICE:
            check_delivery(self._gatherer, message)
        if commands:
            self._gatherer.add_together(
                [Addressed(place.topic, place.queue_id, (message,), waiter)], commands
            )
        else:
            self._add(place, message, now_ms, waiter)

    def _add(self, place: Waiting, message: StagedMessage, now_ms: int, waiter: Sender) -> None:
        if place.deliver_ms is None:
            self._resent.add(place.topic, place.queue_id, (message,), waiter)
            return
        message = message._replace(tags_code=place.deliver_ms)
        watched = self._delivery.watched(place.deliver_ms, now_ms, waiter)
        try:
            self._resent.add(place.topic, place.queue_id, (message,), watched)
        except REFUSALS:
            self._delivery.in_flight.landed(place.deliver_ms)
            raise

    def _half_place(self, header: SendHeader, queue_id: int, properties: bytes) -> Waiting:
        open_max = STATE.transactions_max
        if len(self._machine.state.transactions) >= open_max:
            raise RequestError(
                ResponseCode.SYSTEM_BUSY, f"{open_max} transactions are open, none may be added"
            )
        return half_place(header.topic, queue_id, properties)

    def _given_up(self, header: SendHeader, times_max: int) -> GroupConfig | None:
        """The group that has tried this message often enough.

        A client whose code 36 has failed sends the message to the retry topic by itself.
        """
        if not header.topic.startswith(RETRY_PREFIX):
            return None
        name = header.topic.removeprefix(RETRY_PREFIX)
        group = self._gatherer.group(name)
        if group is None:
            raise RequestError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {name}"
            )
        times_max = group.retry_max_times if times_max < 0 else times_max
        return group if header.reconsume_times >= times_max else None
