"""Requests about offsets: 14 and 15 (of groups), 29 to 32 (of queues). The rules are in
:mod:`broker.delivery.offsets`."""

from __future__ import annotations

import logging
from functools import partial

from broker.context import BrokerContext
from broker.remoting.connection import Connection
from broker.remoting.error_responses import respond_refusal, respond_when_done
from broker.remoting.protocol.codes import ResponseCode
from broker.remoting.protocol.errors import FieldError
from broker.remoting.protocol.ext_fields import INT32_MAX, ext_bool, ext_int, ext_str
from broker.remoting.protocol.frame import Frame
from dledger.errors import ProposeError
from store.errors import StoreError
from store.quoting import FROM_OUTSIDE, quoted

log = logging.getLogger(__name__)


class OffsetProcessor:
    """Handles offsets. Followers answer queries too, as linearizable reads."""

    def __init__(self, context: BrokerContext) -> None:
        self._batcher = context.batcher
        self._offsets = context.offsets

    # --- consumer offsets

    def query_consumer_offset(self, connection: Connection, request: Frame) -> None:
        """Code 14. Answered only if the offset is known to be the newest committed one.

        Java 4.9 takes every error for "never committed" and may then skip to the end of the queue.
        Only without an answer does it ask again (section 14, item 7).
        """
        group, topic, queue_id = _place(request)

        def answer(offset: int | None, error: ProposeError | StoreError | None) -> None:
            if isinstance(error, StoreError):
                log.warning(
                    "no answer to a query of a group's offset: %s", error, extra=FROM_OUTSIDE
                )
            elif offset is not None:
                connection.respond(request, ext={"offset": str(offset)})
            elif error is None:
                connection.respond(
                    request,
                    ResponseCode.QUERY_NOT_FOUND,
                    f"the group {group} has committed no offset for queue {queue_id} of {topic}",
                )

        # A client that says that it can begin elsewhere than at 0 gets "not found".
        may_choose = not ext_bool(request, "setZeroIfNotFound", True)
        self._offsets.committed(group, topic, queue_id, answer, may_choose=may_choose)

    def update_consumer_offset(self, connection: Connection, request: Frame) -> None:
        """Code 15."""
        group, topic, queue_id = _place(request)
        offset = ext_int(request, "commitOffset")
        if request.is_one_way and self._batcher.offset(group, topic, queue_id) == offset:
            return  # clients repeat an offset every 5 s; only changes go into the log
        done = respond_when_done(connection, request)
        self._offsets.commit(group, topic, queue_id, offset, done)

    # --- queue offsets

    def max_offset(self, connection: Connection, request: Frame) -> None:
        """Code 30: the offset that the queue's next message will get."""
        connection.respond(request, ext={"offset": str(self._bounds(request)[1])})

    def min_offset(self, connection: Connection, request: Frame) -> None:
        """Code 31: the offset of the queue's oldest message, or of its next if it is empty."""
        connection.respond(request, ext={"offset": str(self._bounds(request)[0])})

    def earliest_store_time(self, connection: Connection, request: Frame) -> None:
        """Code 32: when the queue's oldest message was stored; -1 if there is none."""
        topic, queue_id = ext_str(request, "topic"), ext_int(request, "queueId")
        done = partial(_answer_number, connection, request, "timestamp")
        self._offsets.earliest_store_time(topic, queue_id, done)

    def search_offset(self, connection: Connection, request: Frame) -> None:
        """Code 29: the offset of the message stored at a time, by the rules of RocketMQ 4.9, or by
        those of 5.x if the request has a boundary."""
        topic, queue_id = ext_str(request, "topic"), ext_int(request, "queueId")
        timestamp_ms = ext_int(request, "timestamp")
        boundary = ext_str(request, "boundaryType", "").lower()
        if boundary not in ("", "lower", "upper"):
            raise FieldError(f"boundaryType {quoted(boundary)} is neither lower nor upper")
        done = partial(_answer_number, connection, request, "offset")
        self._offsets.search(topic, queue_id, timestamp_ms, boundary, done)

    def _bounds(self, request: Frame) -> tuple[int, int]:
        return self._offsets.bounds(ext_str(request, "topic"), ext_int(request, "queueId"))


def _place(request: Frame) -> tuple[str, str, int]:
    """Group, topic and queue id."""
    return (
        ext_str(request, "consumerGroup"),
        ext_str(request, "topic"),
        ext_int(request, "queueId", minimum=0, maximum=INT32_MAX),
    )


def _answer_number(
    connection: Connection, request: Frame, name: str, number: int, error: StoreError | None
) -> None:
    if error is None:
        connection.respond(request, ext={name: str(number)})
    else:
        respond_refusal(connection, request, error)
