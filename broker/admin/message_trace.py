"""What clients of RocketMQ tell of the way of a message: the bodies of ``RMQ_SYS_TRACE_TOPIC``.

A client with message trace on sends them as ordinary messages, whose keys are the ids and keys of
the messages that they tell of. A body is a sequence of events. Each ends with the byte 0x02, its
fields are separated by 0x01, and the first one is its kind (RocketMQ 4.x, ``TraceDataEncoder``)::

    Pub             time, region, group, topic, id, tags, keys, broker's address, bytes of the body,
                    ms, type of message, offset id, success
    SubBefore       time, region, group, request, id, retries, keys
    SubAfter        request, id, ms, success, keys, outcome, time, group
    EndTransaction  time, region, group, topic, id, tags, keys, broker's address, type of message,
                    transaction, state, whether the broker had asked

Later clients add fields at the end, earlier ones lack some.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
_EVENT_END = "\x02"
_FIELD_END = "\x01"
_OUTCOMES = ("success", "time-out", "exception", "returned null", "failed")
"""By the number in ``SubAfter``: ``ConsumeReturnType`` of the Java client."""


class TraceKind(StrEnum):
    """What a client did."""

    SENT = "Pub"
    CONSUMING = "SubBefore"
    CONSUMED = "SubAfter"
    TRANSACTION_ENDED = "EndTransaction"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceEvent:
    """One event. Texts are empty, and numbers ``None``, where the client did not tell."""

    kind: TraceKind
    message_id: str
    time_ms: int | None = None
    group: str = ""
    topic: str = ""
    tags: str = ""
    keys: str = ""
    broker: str = ""
    cost_ms: int | None = None
    success: bool | None = None
    retries: int | None = None
    outcome: str = ""
    transaction: str = ""
    request: str = ""


def decode_trace(body: bytes) -> list[TraceEvent]:
    """The events of a body, in its order.

    Kinds that are not known here are left out. Raises :class:`ValueError` for an event without the
    id of its message, and for bytes that are no UTF-8.
    """
    events = []
    for text in body.decode().split(_EVENT_END):
        kind, *fields = text.split(_FIELD_END)
        if kind in _READERS:
            event = _READERS[TraceKind(kind)](iter(fields))
            if not event.message_id:
                raise ValueError(f"a trace event {kind} names no message")
            events.append(event)
    return events


def trace_of(message_id: str, bodies: Sequence[bytes]) -> list[TraceEvent]:
    """All that is told of one message, by time. Raises :class:`ValueError`."""
    events = [
        event
        for body in bodies
        for event in decode_trace(body)
        if event.message_id.upper() == message_id.upper()
    ]
    began = {event.request: event for event in events if event.kind is TraceKind.CONSUMING}
    return sorted(events, key=lambda event: _order(event, began))


def _order(event: TraceEvent, began: dict[str, TraceEvent]) -> tuple[int, bool]:
    """An early client gives the end of a consumption no time: then it follows its beginning."""
    time = event.time_ms
    if time is None and event.request in began:
        time = (began[event.request].time_ms or 0) + (event.cost_ms or 0)
    return time or 0, event.kind is not TraceKind.SENT


def _sent(fields: Iterator[str]) -> TraceEvent:
    time, _region, group, topic, message_id, tags, keys, broker, _bytes, cost, _type = (
        next(fields, "") for _ in range(11)
    )
    _offset_id, success = next(fields, ""), next(fields, "")
    return TraceEvent(
        kind=TraceKind.SENT,
        message_id=message_id,
        time_ms=_number(time),
        group=group,
        topic=topic,
        tags=tags,
        keys=keys,
        broker=broker,
        cost_ms=_number(cost),
        success=_flag(success),
    )


def _consuming(fields: Iterator[str]) -> TraceEvent:
    time, _region, group, request, message_id, retries, keys = (next(fields, "") for _ in range(7))
    return TraceEvent(
        kind=TraceKind.CONSUMING,
        message_id=message_id,
        time_ms=_number(time),
        group=group,
        keys=keys,
        retries=_number(retries),
        request=request,
    )


def _consumed(fields: Iterator[str]) -> TraceEvent:
    request, message_id, cost, success, keys, outcome, time, group = (
        next(fields, "") for _ in range(8)
    )
    number = _number(outcome)
    known = number is not None and 0 <= number < len(_OUTCOMES)
    return TraceEvent(
        kind=TraceKind.CONSUMED,
        message_id=message_id,
        time_ms=_number(time),
        group=group,
        keys=keys,
        cost_ms=_number(cost),
        success=_flag(success),
        outcome=_OUTCOMES[number] if known and number is not None else outcome,
        request=request,
    )


def _transaction_ended(fields: Iterator[str]) -> TraceEvent:
    time, _region, group, topic, message_id, tags, keys, broker, _type, transaction, state = (
        next(fields, "") for _ in range(11)
    )
    return TraceEvent(
        kind=TraceKind.TRANSACTION_ENDED,
        message_id=message_id,
        time_ms=_number(time),
        group=group,
        topic=topic,
        tags=tags,
        keys=keys,
        broker=broker,
        outcome=state,
        transaction=transaction,
    )


_READERS = {
    TraceKind.SENT: _sent,
    TraceKind.CONSUMING: _consuming,
    TraceKind.CONSUMED: _consumed,
    TraceKind.TRANSACTION_ENDED: _transaction_ended,
}


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def _flag(text: str) -> bool | None:
    return {"true": True, "false": False}.get(text)
