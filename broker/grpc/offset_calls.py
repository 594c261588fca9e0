"""PullMessage, UpdateOffset, GetOffset and QueryOffset: for consumers that pull queues themselves.

PullMessage is served by :mod:`broker.delivery.fetch`, like any pull. The others are requests of
RocketMQ 4 in another form. They are passed to its handlers
(:mod:`broker.remoting.processors.consumer_offsets`), so their rules exist once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
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
from broker.grpc.protocol.definition_pb2 import Code, MessageQueue, QueryOffsetPolicy
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
from broker.grpc.statuses import OK, BadCallError, status_of
from broker.limits import CONSUME, GRPC, RemotingLimits
from broker.remoting.connection import Connection
from broker.remoting.processors.consumer_offsets import OffsetProcessor
from broker.remoting.protocol.codes import OUTCOME, OUTCOME_NOT_LEADER, ResponseCode
from broker.remoting.protocol.errors import RequestError
from broker.remoting.protocol.frame import Frame
from dledger.errors import NotServingError
from dledger.settle import settle
from store.io.filesystem import Bytes

READ_SECONDS = 3.0
"""Pace: how long a call waits for an offset to be confirmed."""

_CODES = {
    ResponseCode.QUERY_NOT_FOUND: Code.OFFSET_NOT_FOUND,
    ResponseCode.SERVICE_NOT_AVAILABLE: Code.HA_NOT_AVAILABLE,
    ResponseCode.SYSTEM_BUSY: Code.TOO_MANY_REQUESTS,
}


class _Caller(Connection):
    """Calls a handler of the remoting port from this process. ``answered`` gets the answer."""

    def __init__(self, loop: asyncio.AbstractEventLoop, address: str) -> None:
        super().__init__(loop, lambda _connection, _frame: None, RemotingLimits(), address=address)
        self.answered: asyncio.Future[tuple[int, str, Mapping[str, str]]] = loop.create_future()

    def respond(
        self,
        _request: Frame,
        code: int = ResponseCode.SUCCESS,
        remark: str | None = None,
        ext: Mapping[str, str] | None = None,
        body: Sequence[Bytes] = (),  # noqa: ARG002 - the name is that of the base class
    ) -> None:
        if not self.answered.done():
            self.answered.set_result((code, remark or "", ext or {}))


class OffsetCalls:
    """Handles offsets and pulls of consumers."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._offsets = OffsetProcessor(context)

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
        nothing = BadCallError(Code.MESSAGE_NOT_FOUND, "no message")
        return [
            PullMessageResponse(status=OK if messages else status_of(nothing)),
            *(
                PullMessageResponse(message=message_of(record, queue.topic, body))
                for record, body in messages
            ),
            PullMessageResponse(next_offset=next_offset),
        ]

    async def update(self, call: Call, request: UpdateOffsetRequest) -> Sequence[AnyMessage]:
        """Code 15 of RocketMQ 4."""
        if request.offset < 0:
            raise BadCallError(Code.ILLEGAL_OFFSET, f"the offset is {request.offset}")
        ext = self._group_queue(request) | {"commitOffset": str(request.offset)}
        await self._asked(call, self._offsets.update_consumer_offset, ext)
        return [UpdateOffsetResponse(status=OK)]

    async def get(self, call: Call, request: GetOffsetRequest) -> Sequence[AnyMessage]:
        """Code 14 of RocketMQ 4. A group without a committed offset gets a status for that."""
        ext = self._group_queue(request) | {"setZeroIfNotFound": "false"}
        found = await self._asked(call, self._offsets.query_consumer_offset, ext)
        return [GetOffsetResponse(status=OK, offset=int(found["offset"]))]

    async def query(self, call: Call, request: QueryOffsetRequest) -> Sequence[AnyMessage]:
        """Codes 29, 30 and 31 of RocketMQ 4, which are linearizable reads."""
        ext = _queue(request.message_queue)
        policies: dict[int, Callable[[Connection, Frame], None]] = {
            QueryOffsetPolicy.BEGINNING: self._offsets.min_offset,
            QueryOffsetPolicy.END: self._offsets.max_offset,
            QueryOffsetPolicy.TIMESTAMP: self._offsets.search_offset,
        }
        if request.query_offset_policy not in policies:
            raise BadCallError(Code.BAD_REQUEST, f"there is no {request.query_offset_policy}")
        if request.query_offset_policy == QueryOffsetPolicy.TIMESTAMP:
            since_ms = milliseconds(request.timestamp)
            if since_ms is None:
                raise BadCallError(Code.BAD_REQUEST, "the timestamp is missing or invalid")
            ext |= {"timestamp": str(since_ms)}
        await self._confirmed()
        found = await self._asked(call, policies[request.query_offset_policy], ext)
        return [QueryOffsetResponse(status=OK, offset=int(found["offset"]))]

    async def _confirmed(self) -> None:
        """Ends once this node has applied everything that was committed before. Raises
        :class:`~dledger.errors.ReadUnconfirmedError`."""
        if self._context.config.reads == "stale":
            return
        confirmed: asyncio.Future[None] = self._context.loop.create_future()
        self._context.node.reads.add(partial(settle, confirmed, None))
        async with _read_seconds():
            await confirmed

    @staticmethod
    def _group_queue(request: UpdateOffsetRequest | GetOffsetRequest) -> dict[str, str]:
        group = checked_group(request.group, request.message_queue.topic)
        return _queue(request.message_queue) | {"consumerGroup": group}

    async def _asked(
        self, call: Call, handler: Callable[[Connection, Frame], None], ext: dict[str, str]
    ) -> Mapping[str, str]:
        """The fields of the handler's answer. Raises its refusals."""
        caller = _Caller(self._context.loop, call.client)
        try:
            handler(caller, Frame(0, 0, 0, ext=dict(ext)))
            async with _read_seconds():
                code, remark, found = await caller.answered
        except RequestError as error:
            raise _refused(error.code, error.remark) from None
        if found.get(OUTCOME) == OUTCOME_NOT_LEADER:
            raise NotServingError
        if code != ResponseCode.SUCCESS:
            raise _refused(code, remark)
        return found

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


def _queue(queue: MessageQueue) -> dict[str, str]:
    return {"topic": name_of(queue.topic), "queueId": str(queue.id)}


def _refused(code: int, remark: str) -> BadCallError:
    return BadCallError(_CODES.get(ResponseCode(code), Code.BAD_REQUEST), remark)
