"""PullMessage, UpdateOffset, GetOffset and QueryOffset: for consumers that pull queues themselves.

PullMessage is served by :mod:`broker.delivery.fetch`, like any pull, and the others by
:mod:`broker.delivery.offsets`, like codes 14, 15 and 29 to 31 of RocketMQ 4.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

from google.protobuf.message import Message as AnyMessage

from broker.context import BrokerContext
from broker.delivery.fetch import Fetched, FetchRequest, fetch_limits
from broker.delivery.inflated_bodies import inflated
from broker.delivery.message_filter import has_tag
from broker.filter.subscription import TAG_TYPE, tag_names
from broker.grpc.access import caller_of
from broker.grpc.call import Call, name_of
from broker.grpc.consume_calls import checked_group, expression_of, polling_seconds
from broker.grpc.protocol.definition_pb2 import Code, QueryOffsetPolicy, Status
from broker.grpc.protocol.service_pb2 import (
    GetOffsetRequest,
    GetOffsetResponse,
    PullMessageRequest,
    PullMessageResponse,
    QueryOffsetRequest,
    QueryOffsetResponse,
    UpdateOffsetRequest,
    UpdateOffsetResponse,
)
from broker.grpc.received_messages import milliseconds
from broker.grpc.sent_messages import message_of
from broker.grpc.statuses import OK, BadCallError
from broker.limits import CONSUME, GRPC
from broker.topics_and_groups import check_topic_name
from dledger.settle import settle

READ_SECONDS = 3.0
"""Pace: how long a call waits for an offset to be confirmed."""


class OffsetCalls:
    """Handles offsets and pulls of consumers."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._offsets = context.offsets

    async def pull(self, call: Call, request: PullMessageRequest) -> Sequence[AnyMessage]:
        """Messages from an offset on. Any broker answers with messages that it has applied."""
        queue = request.message_queue
        group = checked_group(request.group, queue.topic)
        if request.offset < 0:
            raise BadCallError(Code.ILLEGAL_OFFSET, f"the offset is {request.offset}")
        asked_ms = request.long_polling_timeout.ToMilliseconds()
        kind, expression = expression_of(request.filter_expression)
        tags = tag_names(expression) if kind == TAG_TYPE else None
        wanted = FetchRequest(
            name_of(queue.topic),
            queue.id,
            request.offset,
            fetch_limits(min(max(request.batch_size, 1), CONSUME.pull_messages_max)),
            group=group,
            expression=expression,
            expression_type=kind,
            hold_seconds=polling_seconds(call, asked_ms / 1000),
            caller=caller_of(call),
        )
        fetched = await self._fetched(wanted)
        messages, _, rest_at = inflated(fetched.parts, GRPC.inflated_size)
        next_offset = fetched.found.next_offset if rest_at is None else rest_at
        if tags is not None:  # clients do not compare the text
            messages = [each for each in messages if has_tag(each[0].properties, tags)]
        nothing = Status(code=Code.MESSAGE_NOT_FOUND, message="no message")
        return [
            PullMessageResponse(status=OK if messages else nothing),
            *(
                PullMessageResponse(message=message_of(record, queue.topic, body))
                for record, body in messages
            ),
            PullMessageResponse(next_offset=next_offset),
        ]

    async def update(self, _call: Call, request: UpdateOffsetRequest) -> Sequence[AnyMessage]:
        """Commits an offset of a group."""
        if request.offset < 0:
            raise BadCallError(Code.ILLEGAL_OFFSET, f"the offset is {request.offset}")
        place = _group_and_queue(request)
        committed: asyncio.Future[None] = self._context.loop.create_future()
        self._offsets.commit(*place, request.offset, partial(settle, committed, None))
        async with _read_seconds():
            await committed
        return [UpdateOffsetResponse(status=OK)]

    async def get(self, _call: Call, request: GetOffsetRequest) -> Sequence[AnyMessage]:
        """The offset of a group. One without a committed offset gets a status for that."""
        group, topic, queue_id = _group_and_queue(request)
        found: asyncio.Future[int | None] = self._context.loop.create_future()
        done = partial(settle, found)
        self._offsets.committed(group, topic, queue_id, done, may_choose=True)
        async with _read_seconds():
            offset = await found
        if offset is None:
            what = f"the group {group} has committed no offset for queue {queue_id} of {topic}"
            return [GetOffsetResponse(status=Status(code=Code.OFFSET_NOT_FOUND, message=what))]
        return [GetOffsetResponse(status=OK, offset=offset)]

    async def query(self, _call: Call, request: QueryOffsetRequest) -> Sequence[AnyMessage]:
        """Linearizable reads of a queue's bounds, or of the offset for a time."""
        topic, queue_id = name_of(request.message_queue.topic), request.message_queue.id
        check_topic_name(topic)
        policy, since_ms = request.query_offset_policy, milliseconds(request.timestamp)
        if policy not in QueryOffsetPolicy.values():
            raise BadCallError(Code.BAD_REQUEST, f"there is no {policy}")
        if policy == QueryOffsetPolicy.TIMESTAMP and since_ms is None:
            raise BadCallError(Code.BAD_REQUEST, "the timestamp is missing or invalid")
        confirmed: asyncio.Future[None] = self._context.loop.create_future()
        self._offsets.confirm(partial(settle, confirmed, None))
        async with _read_seconds():
            await confirmed
        if policy == QueryOffsetPolicy.TIMESTAMP and since_ms is not None:
            found: asyncio.Future[int] = self._context.loop.create_future()
            self._offsets.search(topic, queue_id, since_ms, "", partial(settle, found))
            async with _read_seconds():
                offset = await found
        else:
            first, end = self._offsets.bounds(topic, queue_id)
            offset = first if policy == QueryOffsetPolicy.BEGINNING else end
        return [QueryOffsetResponse(status=OK, offset=offset)]

    async def _fetched(self, wanted: FetchRequest) -> Fetched:
        answer: asyncio.Future[Fetched] = self._context.loop.create_future()
        fetch = self._context.delivery.fetch(wanted, partial(settle, answer))
        try:
            return await answer
        finally:
            self._context.delivery.cancel(fetch)


@asynccontextmanager
async def _read_seconds() -> AsyncIterator[None]:
    """Raises :class:`~broker.grpc.statuses.BadCallError` after :data:`READ_SECONDS`."""
    try:
        async with asyncio.timeout(READ_SECONDS):
            yield
    except TimeoutError:
        raise BadCallError(Code.REQUEST_TIMEOUT, "the offset could not be confirmed") from None


def _group_and_queue(request: UpdateOffsetRequest | GetOffsetRequest) -> tuple[str, str, int]:
    """Group, topic and queue id."""
    queue = request.message_queue
    return checked_group(request.group, queue.topic), name_of(queue.topic), queue.id
