"""POP of RocketMQ 5's remoting clients: receive, acknowledge, change, and wait for a message.

:mod:`broker.pop.pop` decides what a member receives; this module reads and writes the fields.
Clients make receipt handles from the fields of an answer (:mod:`broker.pop.receipt_handle`).
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from broker.context import BrokerContext
from broker.delivery.message_filter import message_filter
from broker.filter.subscription import ALL, TAG_TYPE
from broker.limits import CONSUME, FORWARDING
from broker.pop.pop_request import (
    PoppedMessage,
    PopRequest,
    PopStatus,
    ReceiptResult,
    ReceiptStatus,
)
from broker.pop.receipt_handle import ReceiptHandle, parse_handle
from broker.remoting.connection import Connection, Handler
from broker.remoting.error_responses import HANDLED, respond_error
from broker.remoting.forwarded_frame import ForwardedFrame
from broker.remoting.processors.callers import Callers
from broker.remoting.processors.json_body import json_object, objects_of, text_of
from broker.remoting.protocol.codes import ResponseCode
from broker.remoting.protocol.errors import FieldError
from broker.remoting.protocol.ext_fields import INT32_MAX, ext_bool, ext_int, ext_str
from broker.remoting.protocol.frame import Frame
from store.field_checks import I64_MAX, integer
from store.io.filesystem import Bytes
from store.message.record import RECONSUME_TIMES, RECONSUME_TIMES_AT

FROM_THE_END = 1
"""Format: ``initMode`` of a group that begins at the newest message."""

_Work: TypeAlias = Callable[[Connection, Frame], Coroutine[Any, Any, None]]

BITS_BYTES_MAX = 8192
"""Format: the number of bits for the messages of one receive request, which lie close together."""

_FORWARDED_SECONDS = FORWARDING.answer_seconds / 2
"""How long a forwarded request may be held: the answer must reach the forwarding broker in time."""

_RECEIPT_CODES = {
    ReceiptStatus.OK: ResponseCode.SUCCESS,
    ReceiptStatus.EXPIRED: ResponseCode.NO_MESSAGE,
    ReceiptStatus.INVALID: ResponseCode.MESSAGE_ILLEGAL,
}
_RECEIPT_WORDS = {
    ReceiptStatus.OK: "",
    ReceiptStatus.EXPIRED: "the delivery of this receipt handle has ended",
    ReceiptStatus.INVALID: "no receipt handle of this broker for that group and topic",
}


class PopProcessor:
    """Handles requests of POP; see :func:`as_task`."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._pop = context.pop
        self._callers = Callers(context)

    async def receive(self, connection: Connection, request: Frame) -> None:
        """Code 200050."""
        wanted = message_filter(
            self._context.settings,
            ext_str(request, "expType", TAG_TYPE) or TAG_TYPE,
            ext_str(request, "exp", ALL) or ALL,
        )
        asked = PopRequest(
            **self._place(request),
            max_messages=ext_int(request, "maxMsgNums", minimum=1, maximum=INT32_MAX),
            invisible_ms=ext_int(request, "invisibleTime"),
            filter=wanted,
            fifo=ext_bool(request, "order", False),
            attempt_id=ext_str(request, "attemptId", ""),
            from_end=ext_int(request, "initMode", 0) == FROM_THE_END,
            caller=self._callers.of(connection, request),
        )
        request.body = b""  # its fields stay: a follower forwards them
        result = await self._pop.receive(asked)
        messages = result.messages
        ext = {
            "popTime": str(messages[0].delivered_ms if messages else 0),
            "invisibleTime": str(asked.invisible_ms),
            "reviveQid": "0",
            "restNum": str(result.rest),
        }
        if not messages:
            full = result.status is PopStatus.FULL
            code = ResponseCode.POLLING_FULL if full else ResponseCode.POLLING_TIMEOUT
            connection.respond(request, code, result.status.value, ext)
            return
        handle = self._handle(messages[0].receipt_handle)
        ext |= {"reviveQid": str(handle.tag)} | _offset_infos(messages)
        parts = [_with_reconsume_times(each) for each in messages]
        connection.respond(request, ResponseCode.SUCCESS, PopStatus.FOUND.value, ext, parts)

    async def ack(self, connection: Connection, request: Frame) -> None:
        """Code 200051."""
        place = ext_str(request, "consumerGroup"), ext_str(request, "topic")
        (result,) = await self._pop.ack(*place, [self._told_handle(request)])
        _respond_receipt(connection, request, result)

    async def ack_batch(self, connection: Connection, request: Frame) -> None:
        """Code 200151: the body has a row for each receive request, with its messages as bits."""
        by_place: dict[tuple[str, str], list[str]] = {}
        left = CONSUME.pop_handles_max
        body = json_object(request, "the acknowledgements")
        for each in objects_of(body, "acks"):
            place = text_of(each, "c"), text_of(each, "t")
            handles = [*self._batch_handles(each, left)]
            left -= len(handles)
            by_place.setdefault(place, []).extend(handles)
        results = [
            result
            for (group, topic), handles in by_place.items()
            for result in await self._pop.ack(group, topic, handles)
        ]
        failed = [each for each in results if each.status is not ReceiptStatus.OK]
        _respond_receipt(connection, request, (failed or results or [_NOTHING])[0])

    async def change(self, connection: Connection, request: Frame) -> None:
        """Code 200053. The answer has the time and the nonce of the new receipt handle."""
        invisible_ms = ext_int(request, "invisibleTime")
        result = await self._pop.change_invisible(
            ext_str(request, "consumerGroup"),
            ext_str(request, "topic"),
            self._told_handle(request),
            invisible_ms,
        )
        ext = None
        if result.status is ReceiptStatus.OK:
            handle = self._handle(result.receipt_handle)
            ext = {
                "popTime": str(handle.delivered_ms),
                "invisibleTime": str(handle.invisible_ms),
                "reviveQid": str(handle.tag),
            }
        _respond_receipt(connection, request, result, ext)

    async def notify(self, connection: Connection, request: Frame) -> None:
        """Code 200054: whether a message is there now or arrives within the poll time."""
        asked = PopRequest(**self._place(request), max_messages=1, invisible_ms=1)
        request.body = b""  # its fields stay: a follower forwards them
        found = await self._pop.has_messages(asked)
        ext = {"hasMsg": "true" if found else "false", "pollingFull": "false"}
        connection.respond(request, ext=ext)

    # --- fields

    def _place(self, request: Frame) -> dict[str, Any]:
        """Group, topic and queue of a request, and how long it may wait."""
        queue_id = ext_int(request, "queueId", minimum=-1, maximum=INT32_MAX)
        seconds = min(ext_int(request, "pollTime", 0) / 1000, CONSUME.long_poll_seconds_max)
        if isinstance(request, ForwardedFrame):
            seconds = min(seconds, _FORWARDED_SECONDS)
        deadline_ms = int((self._context.loop.time() + seconds) * 1000) if seconds > 0 else 0
        return {
            "group": ext_str(request, "consumerGroup"),
            "topic": ext_str(request, "topic"),
            "queue": None if queue_id < 0 else queue_id,
            "deadline_ms": deadline_ms,
        }

    def _handle(self, text: str) -> ReceiptHandle:
        """Decodes a handle that :mod:`broker.pop.pop` has made."""
        handle = parse_handle(text, self._context.config.group)
        if handle is None:
            raise ValueError(f"no receipt handle: {text}")
        return handle

    def _told_handle(self, request: Frame) -> str:
        """The handle of a request. The other fields must agree with it."""
        told = ext_str(request, "extraInfo")
        handle = parse_handle(told, self._context.config.group)
        place = ext_int(request, "queueId"), ext_int(request, "offset")
        if handle is not None and place != (handle.queue_id, handle.offset):
            raise FieldError(f"queueId and offset are {place}, and others in extraInfo")
        return told

    def _batch_handles(self, each: Mapping[str, Any], most: int) -> Iterator[str]:
        """A handle for each received message; an offset is ``so`` and the number of a bit."""
        try:
            start, delivered_ms, invisible_ms, tag, queue_id = (
                integer(each.get(name)) for name in ("so", "pt", "it", "rq", "q")
            )
            told = b64decode(text_of(each, "b"), validate=True)
        except (ValueError, binascii.Error) as error:
            raise FieldError(f"an acknowledgement cannot be read: {error}") from None
        bits = int.from_bytes(told[:BITS_BYTES_MAX], "little")
        if (
            len(told) > BITS_BYTES_MAX
            or bits.bit_count() > most
            or start + bits.bit_length() > I64_MAX
        ):
            raise FieldError(f"more than {CONSUME.pop_handles_max} acknowledgements")
        while bits:
            bit = (bits & -bits).bit_length() - 1
            bits &= bits - 1
            yield str(
                ReceiptHandle(
                    tag,
                    delivered_ms,
                    invisible_ms,
                    self._context.config.group,
                    queue_id,
                    start + bit,
                )
            )


_NOTHING = ReceiptResult(ReceiptStatus.OK)


def as_task(work: _Work) -> Handler:
    """A handler that does ``work`` in a task, which ends with its connection."""

    def serve(connection: Connection, request: Frame) -> None:
        connection.run(_answered(connection, request, work))

    return serve


async def _answered(connection: Connection, request: Frame, work: _Work) -> None:
    """Does the work, and answers its errors."""
    try:
        await work(connection, request)
    except HANDLED as error:
        respond_error(connection, request, error)


def _respond_receipt(
    connection: Connection,
    request: Frame,
    result: ReceiptResult,
    ext: Mapping[str, str] | None = None,
) -> None:
    status = result.status
    connection.respond(request, _RECEIPT_CODES[status], _RECEIPT_WORDS[status], ext)


def _offset_infos(messages: Sequence[PoppedMessage]) -> dict[str, str]:
    """``startOffsetInfo`` and ``msgOffsetInfo``: for each queue a 0 (no retry topic), the queue id,
    and the first offset or all offsets."""
    by_queue: dict[int, list[int]] = {}
    for each in messages:
        by_queue.setdefault(each.queue, []).append(each.offset)
    starts = [f"0 {queue_id} {min(offsets)}" for queue_id, offsets in by_queue.items()]
    offsets = [
        f"0 {queue_id} {','.join(map(str, sorted(offsets)))}"
        for queue_id, offsets in by_queue.items()
    ]
    return {"startOffsetInfo": ";".join(starts), "msgOffsetInfo": ";".join(offsets)}


def _with_reconsume_times(message: PoppedMessage) -> Bytes:
    """The record. From the second delivery on it has the number of earlier attempts."""
    if message.delivery_attempt <= 1:
        return message.record
    record = bytearray(message.record)
    RECONSUME_TIMES.pack_into(record, RECONSUME_TIMES_AT, message.delivery_attempt - 1)
    return record
