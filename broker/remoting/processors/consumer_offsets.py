"""Requests about offsets: 14 and 15 (of groups), 29 to 32 (of queues)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from broker.context import BrokerContext
from broker.delivery.first_offset import begins_at_end
from broker.delivery.offset_quota import check_offset_quota
from broker.delivery.offset_resets import reset_commands
from broker.errors import unknown_topic
from broker.remoting.connection import Connection
from broker.remoting.error_responses import respond_when_done
from broker.remoting.protocol.codes import ResponseCode
from broker.remoting.protocol.errors import FieldError, RequestError
from broker.remoting.protocol.ext_fields import INT32_MAX, ext_bool, ext_int, ext_str
from broker.remoting.protocol.frame import Frame
from broker.state.commands import Command, CommitOffset
from broker.topics_and_groups import check_group_name, check_queue, check_topic_name
from dledger.errors import ProposeError
from store.errors import StoreError
from store.quoting import FROM_OUTSIDE, quoted

log = logging.getLogger(__name__)


class OffsetProcessor:
    """Handles offsets. Followers answer queries too, as linearizable reads."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    # --- consumer offsets

    def query_consumer_offset(self, connection: Connection, request: Frame) -> None:
        """Code 14. Answered only if the offset is known to be the newest committed one.

        Java 4.9 takes every error for "never committed" and may then skip to the end of the queue.
        Only without an answer does it ask again (section 14, item 7).
        """
        group = ext_str(request, "consumerGroup")
        topic = ext_str(request, "topic")
        queue_id = ext_int(request, "queueId", minimum=0, maximum=INT32_MAX)

        def answer(error: ProposeError | None) -> None:
            if error is None:
                self._answer_offset(connection, request, group, topic, queue_id)

        machine, batcher = self._context.machine, self._context.batcher
        known = machine.state.offset(group, topic, queue_id)
        if batcher.serving and batcher.offset(group, topic, queue_id) != known:
            # A client that commits one-way and then asks, as Java's do when a queue moves, expects
            # its own commit in the answer.
            with suppress(ProposeError):
                batcher.add_barrier(answer)
        elif self._context.config.reads == "stale":
            answer(None)
        else:
            self._context.node.reads.add(answer)

    def _answer_offset(
        self, connection: Connection, request: Frame, group: str, topic: str, queue_id: int
    ) -> None:
        offset = self._context.machine.state.offset(group, topic, queue_id)
        if offset is None:
            # A client that says that it can begin elsewhere than at 0 gets "not found".
            elsewhere = not ext_bool(request, "setZeroIfNotFound", True)
            machine, replicas = self._context.machine, self._context.delivery.replica_selection
            try:
                elsewhere = elsewhere or begins_at_end(machine, replicas, topic, queue_id)
            except StoreError as error:
                log.warning(
                    "no answer to a query of a group's offset: %s", error, extra=FROM_OUTSIDE
                )
                return
            if elsewhere:
                connection.respond(
                    request,
                    ResponseCode.QUERY_NOT_FOUND,
                    f"the group {group} has committed no offset for queue {queue_id} of {topic}",
                )
                return
            offset = 0
        connection.respond(request, ext={"offset": str(offset)})

    def update_consumer_offset(self, connection: Connection, request: Frame) -> None:
        """Code 15. A negative offset means none and has no effect (ali-ons sends it). No offset has
        an effect while an offset reset of the group and queue is in progress.

        RocketMQ 5 refuses offsets of unknown topics; like 4.x it takes any offset of a known queue.
        This broker refuses an offset behind the end of the queue: nobody can have consumed more. An
        offset before the first message is valid: messages have expired since.
        """
        group = ext_str(request, "consumerGroup")
        topic = ext_str(request, "topic")
        queue_id = ext_int(request, "queueId", minimum=0, maximum=INT32_MAX)
        offset = ext_int(request, "commitOffset")
        batcher = self._context.batcher
        resets = self._context.delivery.resets
        if offset < 0 or (resets and resets.is_pending(group, topic, queue_id)):
            connection.respond(request)
            return
        if request.is_one_way and batcher.offset(group, topic, queue_id) == offset:
            return  # clients repeat an offset every 5 s; only changes go into the log

        check_group_name(group)
        check_topic_name(topic)
        batcher.check_serving()
        config = batcher.topic(topic)
        if config is None:
            raise unknown_topic(topic)
        check_queue(config, queue_id)
        end = batcher.end_offset(topic, queue_id)
        if offset > end:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"the offset {offset} lies behind queue {queue_id} of {topic}, which ends at {end}",
            )
        check_offset_quota(batcher, group, topic, (queue_id,))
        self._context.ingest.auto_creator.ensure_group(group)
        commands: Sequence[Command] = (CommitOffset(group, topic, queue_id, offset),)
        if self._context.clients.consumers.get(group) is None and self._is_back(
            group, topic, queue_id, offset
        ):
            commands = reset_commands(batcher, group, topic, queue_id, offset)
        batcher.add_in_one_entry((), commands, respond_when_done(connection, request))

    def _is_back(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Whether the offset would move a POP group back. A member's offset may not do that; an
        operator's may, while no member is connected."""
        cursor = self._context.batcher.pop_queue((group, topic, queue_id))
        return cursor is not None and offset < cursor.queue.committed_offset

    # --- queue offsets

    def max_offset(self, connection: Connection, request: Frame) -> None:
        """Code 30: the offset that the queue's next message will get."""
        connection.respond(request, ext={"offset": str(self._offsets(request)[1])})

    def min_offset(self, connection: Connection, request: Frame) -> None:
        """Code 31: the offset of the queue's oldest message, or of its next if it is empty."""
        connection.respond(request, ext={"offset": str(self._offsets(request)[0])})

    def earliest_store_time(self, connection: Connection, request: Frame) -> None:
        """Code 32: when the queue's oldest message was stored; -1 if there is none."""
        topic, queue_id = self._queue(request)
        first, end = self._context.reader.offsets(topic, queue_id)
        if first == end:
            connection.respond(request, ext={"timestamp": "-1"})
            return
        self._context.lookup.store_time(
            topic, queue_id, first, partial(_answer_number, connection, request, "timestamp")
        )

    def search_offset(self, connection: Connection, request: Frame) -> None:
        """Code 29: the offset of the message stored at a time, by the rules of RocketMQ 4.9, or by
        those of 5.x if the request has a boundary."""
        topic, queue_id = self._queue(request)
        timestamp_ms = ext_int(request, "timestamp")
        boundary = ext_str(request, "boundaryType", "").lower()
        if boundary not in ("", "lower", "upper"):
            raise FieldError(f"boundaryType {quoted(boundary)} is neither lower nor upper")
        self._context.lookup.search_time(
            topic,
            queue_id,
            timestamp_ms,
            boundary,
            partial(_answer_number, connection, request, "offset"),
        )

    def _offsets(self, request: Frame) -> tuple[int, int]:
        return self._context.reader.offsets(*self._queue(request))

    def _queue(self, request: Frame) -> tuple[str, int]:
        name = ext_str(request, "topic")
        queue_id = ext_int(request, "queueId")
        topic = self._context.machine.state.topics.get(name)
        if topic is None:
            raise unknown_topic(name)
        check_queue(topic, queue_id)
        return name, queue_id


def _answer_number(
    connection: Connection, request: Frame, name: str, number: int, error: StoreError | None
) -> None:
    if error is None:
        connection.respond(request, ext={name: str(number)})
    else:
        connection.respond(request, ResponseCode.SYSTEM_ERROR, str(error))
