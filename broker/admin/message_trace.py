"""RocketMQ's message trace: the bodies of messages in ``RMQ_SYS_TRACE_TOPIC``.

A client with message trace on sends traces as ordinary messages. Their keys are the ids and keys of
the traced messages. A body is a sequence of events. Each event ends with the byte 0x02, its fields
are separated by 0x01, and the first field is its kind (RocketMQ 4.x, ``TraceDataEncoder``)::

    Pub             time, region, group, topic, id, tags, keys, broker's address, bytes of the body,
                    ms, type of message, offset id, success
    SubBefore       time, region, group, request, id, retries, keys
    SubAfter        request, id, ms, success, keys, outcome, time, group
    EndTransaction  time, region, group, topic, id, tags, keys, broker's address, type of message,
                    transaction, state, whether it answers a check-back

Later clients add fields at the end; earlier clients lack some.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
_EVENT_END = "\x02"
_FIELD_END = "\x01"
_OUTCOMES = ("success", "time-out", "exception", "returned null", "failed")
"""By the number in ``SubAfter``: ``ConsumeReturnType`` of the Java client."""


class TraceKind(StrEnum):
    """The kind of an event."""

    SENT = "Pub"
    CONSUMING = "SubBefore"
    CONSUMED = "SubAfter"
    TRANSACTION_ENDED = "EndTransaction"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceEvent:
    """One event. Missing texts are empty, and missing numbers ``None``."""

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
    """The events of a body, in order.

    Unknown kinds are left out. Raises :class:`ValueError` for an event without a message id, and
    for bytes that are not UTF-8.
    """
    events = []
    for text in body.decode().split(_EVENT_END):
        kind, *fields = text.split(_FIELD_END)
        if kind in _FIELDS:
            event = _event(TraceKind(kind), fields)
            if not event.message_id:
                raise ValueError(f"a trace event {kind} names no message")
            events.append(event)
    return events


def trace_of(message_id: str, bodies: Sequence[bytes]) -> list[TraceEvent]:
    """All events of one message, by time. Raises :class:`ValueError`."""
    events = [
        event
        for body in bodies
        for event in decode_trace(body)
        if event.message_id.upper() == message_id.upper()
    ]
    began = {event.request: event for event in events if event.kind is TraceKind.CONSUMING}
    return sorted(events, key=lambda event: _order(event, began))


def _order(event: TraceEvent, began: dict[str, TraceEvent]) -> tuple[int, bool]:
    """The sort key of an event. Early clients give the end of a consumption no time; then it
    follows the beginning."""
    time = event.time_ms
    if time is None and event.request in began:
        time = (began[event.request].time_ms or 0) + (event.cost_ms or 0)
    return time or 0, event.kind is not TraceKind.SENT


def _event(kind: TraceKind, fields: Sequence[str]) -> TraceEvent:
    told = dict(zip(_FIELDS[kind], fields, strict=False))
    outcome = told.get("outcome", "")
    number = _number(outcome)
    if kind is TraceKind.CONSUMED and number is not None and number < len(_OUTCOMES):
        outcome = _OUTCOMES[number]
    return TraceEvent(
        kind=kind,
        outcome=outcome,
        success={"true": True, "false": False}.get(told.get("success", "")),
        message_id=told.get("message_id", ""),
        time_ms=_number(told.get("time_ms", "")),
        group=told.get("group", ""),
        topic=told.get("topic", ""),
        tags=told.get("tags", ""),
        keys=told.get("keys", ""),
        broker=told.get("broker", ""),
        cost_ms=_number(told.get("cost_ms", "")),
        retries=_number(told.get("retries", "")),
        transaction=told.get("transaction", ""),
        request=told.get("request", ""),
    )


_FIELDS = {
    TraceKind.SENT: (
        *("time_ms", "region", "group", "topic", "message_id", "tags", "keys", "broker"),
        *("size", "cost_ms", "type", "offset_id", "success"),
    ),
    TraceKind.CONSUMING: ("time_ms", "region", "group", "request", "message_id", "retries", "keys"),
    TraceKind.CONSUMED: (
        *("request", "message_id", "cost_ms", "success", "keys", "outcome", "time_ms", "group"),
    ),
    TraceKind.TRANSACTION_ENDED: (
        *("time_ms", "region", "group", "topic", "message_id", "tags", "keys", "broker", "type"),
        *("transaction", "outcome"),
    ),
}
"""The fields in order; some are not shown."""


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None
