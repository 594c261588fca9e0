"""The calls of consumers, served by POP (:mod:`broker.pop.pop`): ReceiveMessage, AckMessage,
ChangeInvisibleDuration and ForwardMessageToDeadLetterQueue."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message as AnyMessage

from broker.context import BrokerContext
from broker.delivery.message_filter import MessageFilter, message_filter
from broker.filter.subscription import ALL, SQL_TYPE, TAG_TYPE, tag_names
from broker.grpc.access import caller_of, consumes
from broker.grpc.call import Call, name_of
from broker.grpc.protocol.definition_pb2 import (
    Code,
    FilterExpression,
    FilterType,
    Message,
    Resource,
    Status,
)
from broker.grpc.protocol.service_pb2 import (
    AckMessageRequest,
    AckMessageResponse,
    AckMessageResultEntry,
    ChangeInvisibleDurationRequest,
    ChangeInvisibleDurationResponse,
    ForwardMessageToDeadLetterQueueRequest,
    ForwardMessageToDeadLetterQueueResponse,
    GetOffsetRequest,
    PullMessageRequest,
    QueryAssignmentRequest,
    ReceiveMessageRequest,
    ReceiveMessageResponse,
    UpdateOffsetRequest,
)
from broker.grpc.renewals import Renewals
from broker.grpc.sent_messages import message_of, timestamp
from broker.grpc.settings import consumes_in_order
from broker.grpc.statuses import OK, BadCallError
from broker.limits import CONSUME, GRPC
from broker.pop.pop_request import PoppedMessage, PopRequest, ReceiptStatus
from broker.security.authorize import Access
from broker.topics_and_groups import check_group_name, check_topic_name
from store.io.filesystem import Bytes
from store.message.record import decode_record

ANSWER_SECONDS = 0.5
"""Pace: how long before the client's deadline a wait ends."""

_RECEIPTS = {
    ReceiptStatus.OK: OK,
    ReceiptStatus.EXPIRED: Status(
        code=Code.INVALID_RECEIPT_HANDLE, message="the receipt handle has expired"
    ),
    ReceiptStatus.INVALID: Status(
        code=Code.INVALID_RECEIPT_HANDLE,
        message="not a receipt handle of this topic",
    ),
}


class ConsumeCalls:
    """Handles the calls of consumers."""

    def __init__(self, context: BrokerContext, renewals: Renewals) -> None:
        self._context = context
        self._renewals = renewals

    async def receive(self, call: Call, request: ReceiveMessageRequest) -> Sequence[AnyMessage]:
        """Messages of any queue of this broker, whatever queue the client names. Without messages
        the call waits, as long as the client asks."""
        topic = request.message_queue.topic
        messages = _Messages(topic)
        wanted = self._wanted(call, request, messages)
        result = await self._context.pop.receive(wanted)
        if not result.messages:
            nothing = Status(code=Code.MESSAGE_NOT_FOUND, message="no new message")
            return [ReceiveMessageResponse(status=nothing)]
        if wanted.auto_renew:
            self._renewals.given(wanted.group, result.messages)
        now = timestamp(result.messages[0].delivered_ms)
        return [
            ReceiveMessageResponse(status=OK),
            *(_received(each, messages.of(each)) for each in result.messages),
            ReceiveMessageResponse(delivery_timestamp=now),
        ]

    def _wanted(
        self, call: Call, request: ReceiveMessageRequest, messages: _Messages
    ) -> PopRequest:
        topic = name_of(request.message_queue.topic)
        group = checked_group(request.group, request.message_queue.topic)
        if not request.batch_size > 0:
            raise BadCallError(Code.BAD_REQUEST, f"the batch size is {request.batch_size}")
        if len(request.attempt_id) > GRPC.name_size_max:
            raise BadCallError(Code.BAD_REQUEST, "attempt_id is too long")
        if request.auto_renew or not request.HasField("invisible_duration"):
            invisible_ms = int(GRPC.renewed_seconds * 1000)
        else:
            invisible_ms = _millis(request.invisible_duration)
        if request.HasField("long_polling_timeout"):
            seconds = polling_seconds(call, _millis(request.long_polling_timeout) / 1000)
        else:
            seconds = polling_seconds(call, GRPC.long_poll_seconds)
        return PopRequest(
            group=group,
            topic=topic,
            queue=None,
            max_messages=min(request.batch_size, CONSUME.pop_messages_max),
            invisible_ms=invisible_ms,
            deadline_ms=int((self._context.loop.time() + seconds) * 1000) if seconds else 0,
            filter=self._filter(request.filter_expression),
            fifo=consumes_in_order(self._context, [topic]),
            attempt_id=request.attempt_id,
            client_id=call.client_id,
            auto_renew=request.auto_renew,
            retries=True,
            caller=caller_of(call),
            size_of=messages.size,
        )

    def _filter(self, given: FilterExpression) -> MessageFilter:
        """Clients do not compare tags as text, so POP does."""
        kind, expression = expression_of(given)
        wanted = message_filter(self._context.settings, kind, expression)
        return wanted._replace(tags=tag_names(expression)) if kind == TAG_TYPE else wanted

    async def ack(self, _call: Call, request: AckMessageRequest) -> Sequence[AnyMessage]:
        """Each handle has its own status; the common status is set if all are the same."""
        group, topic = checked_group(request.group, request.topic), name_of(request.topic)
        if not 0 < len(request.entries) <= CONSUME.pop_handles_max:
            raise BadCallError(
                Code.BAD_REQUEST,
                f"an acknowledgement has 1 to {CONSUME.pop_handles_max} handles, "
                f"not {len(request.entries)}",
            )
        handles = [each.receipt_handle for each in request.entries]
        results = await self._context.pop.ack(group, topic, handles)
        entries = []
        for entry, result in zip(request.entries, results, strict=True):
            entries.append(
                AckMessageResultEntry(
                    message_id=entry.message_id,
                    receipt_handle=entry.receipt_handle,
                    status=_RECEIPTS[result.status],
                )
            )
        codes = {entry.status.code for entry in entries}
        status = entries[0].status if len(codes) == 1 else Status(code=Code.MULTIPLE_RESULTS)
        return [AckMessageResponse(status=status, entries=entries)]

    async def change(
        self, _call: Call, request: ChangeInvisibleDurationRequest
    ) -> Sequence[AnyMessage]:
        """Changes the invisible time, from now on; the old handle expires."""
        group, topic = checked_group(request.group, request.topic), name_of(request.topic)
        result = await self._context.pop.change_invisible(
            group, topic, request.receipt_handle, _millis(request.invisible_duration)
        )
        return [
            ChangeInvisibleDurationResponse(
                status=_RECEIPTS[result.status], receipt_handle=result.receipt_handle
            )
        ]

    async def give_up(
        self, _call: Call, request: ForwardMessageToDeadLetterQueueRequest
    ) -> Sequence[AnyMessage]:
        """Makes the message a dead letter at once. The attempts in the request are ignored: the
        state counts its own."""
        group, topic = checked_group(request.group, request.topic), name_of(request.topic)
        result = await self._context.pop.to_dead_letter(group, topic, request.receipt_handle)
        return [ForwardMessageToDeadLetterQueueResponse(status=_RECEIPTS[result.status])]


def queue_access(
    request: ReceiveMessageRequest | PullMessageRequest | UpdateOffsetRequest | GetOffsetRequest,
) -> Iterable[Access]:
    """The permissions that a member of the group needs for the topic of a queue."""
    return consumes(request.group, request.message_queue.topic)


def member_access(
    request: AckMessageRequest
    | ChangeInvisibleDurationRequest
    | ForwardMessageToDeadLetterQueueRequest
    | QueryAssignmentRequest,
) -> Iterable[Access]:
    """The same for calls that name the topic."""
    return consumes(request.group, request.topic)


def checked_group(group: Resource, topic: Resource) -> str:
    """The name of the group. Raises :class:`~broker.topics_and_groups.NameRefusedError` for names
    that are missing or not allowed."""
    check_topic_name(name_of(topic))
    check_group_name(name_of(group))
    return name_of(group)


def polling_seconds(call: Call, seconds: float) -> float:
    """How long a call that asks for ``seconds`` may wait for messages. Raises
    :class:`~broker.grpc.statuses.BadCallError`."""
    if seconds < 0:
        raise BadCallError(Code.ILLEGAL_POLLING_TIME, f"the polling time is {seconds} s")
    if call.seconds is not None:
        seconds = min(seconds, max(call.seconds - ANSWER_SECONDS, 0.0))
    return min(seconds, CONSUME.long_poll_seconds_max)


def _millis(duration: Duration) -> int:
    return duration.seconds * 1000 + duration.nanos // 1_000_000


class _Messages:
    """The messages of one answer. Each is converted once, when POP asks for its size: a compressed
    body is larger in the answer."""

    def __init__(self, topic: Resource) -> None:
        self._topic = topic
        self._known: dict[tuple[str, int, int], Message] = {}
        """By topic, queue id and offset."""

    def size(self, encoded: Bytes) -> int:
        """The bytes that a record takes in the answer."""
        record = decode_record(encoded)
        message = message_of(record, self._topic)
        self._known[record.topic, record.queue_id, record.queue_offset] = message
        return len(encoded) - len(record.body) + len(message.body)

    def of(self, popped: PoppedMessage) -> Message:
        """The message that was received."""
        known = self._known.get((popped.topic, popped.queue, popped.offset))
        if known is not None:
            return known
        return message_of(decode_record(popped.record), self._topic)  # given before


def _received(popped: PoppedMessage, message: Message) -> ReceiveMessageResponse:
    system = message.system_properties
    system.receipt_handle = popped.receipt_handle
    system.delivery_attempt = popped.delivery_attempt
    invisible_ms = popped.invisible_until_ms - popped.delivered_ms
    system.invisible_duration.FromMilliseconds(invisible_ms)
    return ReceiveMessageResponse(message=message)


def expression_of(given: FilterExpression) -> tuple[str, str]:
    """RocketMQ's name of the filter type, and the expression. Raises
    :class:`~broker.grpc.statuses.BadCallError`."""
    kind = _FILTERS.get(given.type)
    if kind is None:
        raise BadCallError(Code.ILLEGAL_FILTER_EXPRESSION, f"there is no filter type {given.type}")
    return kind, given.expression or ALL


_FILTERS: dict[int, str] = {
    FilterType.FILTER_TYPE_UNSPECIFIED: TAG_TYPE,
    FilterType.TAG: TAG_TYPE,
    FilterType.SQL: SQL_TYPE,
}
