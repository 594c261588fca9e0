"""Messages that consumers could not consume and send back: code 36."""

from __future__ import annotations

from functools import partial

from broker.context import BrokerContext
from broker.group_commit.pending_batch import QueueMessages
from broker.ingest.message_router import check_republished_size
from broker.remoting.connection import Connection
from broker.remoting.error_responses import REFUSALS, refused, remark_of, response_code_of
from broker.remoting.processors.send_message_header import INT32_MAX
from broker.remoting.protocol.codes import ResponseCode
from broker.remoting.protocol.errors import RequestError
from broker.remoting.protocol.ext_fields import ext_int, ext_str
from broker.remoting.protocol.frame import Frame
from broker.retry.retry_and_dead_letter import missing_retry_topics, retry_message
from broker.state.commands import PutTopic
from broker.topics_and_groups import GroupConfig
from dledger.errors import ProposeError
from store.errors import StoreError
from store.io.filesystem import Bytes
from store.message.record import MessageRecord, decode_record, make_pending_message
from store.message.scheduled_topics import SCHEDULED_TOPICS


class SendBackProcessor:
    """Handles code 36 (``CONSUMER_SEND_MSG_BACK``)."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def send_back(self, connection: Connection, request: Frame) -> None:
        """Stores a copy of the message at the given position for the group's next attempt."""
        batcher = self._context.batcher
        position = ext_int(request, "offset")
        name = ext_str(request, "group")
        delay_level = ext_int(request, "delayLevel", minimum=-INT32_MAX, maximum=INT32_MAX)
        times_max = ext_int(request, "maxReconsumeTimes", -1)
        try:
            batcher.check_serving()
        except REFUSALS as error:
            raise refused(error) from error
        group = batcher.group(name)
        if group is None:
            raise RequestError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {name}"
            )
        if group.retry_queues <= 0:  # by its settings, what the group fails at is given up
            connection.respond(request)
            return
        if times_max < 0:
            times_max = group.retry_max_times

        def found(data: Bytes, error: StoreError | None) -> None:
            try:
                if error is not None:
                    raise error
                record = decode_record(data)
                place = self._staged(record, group, delay_level, times_max)
                self._context.batcher.add_in_one_entry(*place, partial(stored, record))
            except RequestError as refusal:
                connection.respond(request, refusal.code, refusal.remark)
            except REFUSALS as refusal:
                connection.respond(request, response_code_of(refusal), remark_of(refusal))
            except StoreError as failure:
                connection.respond(
                    request,
                    ResponseCode.SYSTEM_ERROR,
                    f"look message by offset failed, {position}: {failure}",
                )

        def stored(record: MessageRecord, error: ProposeError | None) -> None:
            if error is None:
                self._context.rates.topic_metrics.returned(record.topic, name, record.size)
                connection.respond(request)
            else:
                connection.respond(request, response_code_of(error), remark_of(error))

        self._context.lookup.record(position, found)

    def _staged(
        self, record: MessageRecord, group: GroupConfig, delay_level: int, times_max: int
    ) -> tuple[list[QueueMessages], list[PutTopic]]:
        """The copy, and what creates the topic that it is meant for."""
        context = self._context
        topic, place = retry_message(record, group, delay_level, times_max, context.rng)
        commands = missing_retry_topics(group, topic, context.batcher.topic, context.wall_clock())
        message = make_pending_message(
            place.topic,
            record.body,
            place.properties,
            flag=record.flag,
            sys_flag=record.sys_flag,
            born_timestamp=record.born_timestamp,
            born_host=record.born_host,
            reconsume_times=min(record.reconsume_times + 1, INT32_MAX),
        )
        if place.topic in SCHEDULED_TOPICS:
            check_republished_size(context.batcher, message)
        return [QueueMessages(place.topic, place.queue_id, (message,))], commands
