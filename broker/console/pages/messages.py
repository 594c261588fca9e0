"""The pages of messages: lists by offset, time, key or id; one message; and message traces.

Nothing is consumed: these pages leave no offset and no group behind.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple
from urllib.parse import urlencode

from broker.cli.terminal.name_arguments import topic_name
from broker.cli.terminal.time_arguments import timestamp_ms
from broker.client.errors import UndecodableBodyError
from broker.client.received_message import ReceivedMessage
from broker.cluster_admin.message_lookup import (
    EVENTS,
    MESSAGE_ID,
    OUTCOMES,
    find_by_id,
    find_by_key,
    find_by_unique_key,
    trace_events,
)
from broker.cluster_admin.peeking import Peek, Window
from broker.command_error import CommandError, UsageError
from broker.console.actions.action import checked, one_of, whole
from broker.console.visits.visit import Page, Visit
from broker.limits import CONSOLE, STATE
from broker.remoting.protocol.ext_fields import INT64_MAX

COUNTS = (20, 50, 200)
BY = ("latest", "offset", "time", "key", "id")
FORMS = ("text", "json", "hex")
PREVIEW_SIZE = 120
_HEX_COLUMNS = 16


class Row(NamedTuple):
    """A message in a list."""

    broker: str
    queue_id: int
    offset: int
    stored_ms: int
    message_id: str
    keys: str
    tags: str
    size: int
    preview: str


async def messages(visit: Visit) -> Page:
    """The page with the form and the found messages."""
    query = visit.query
    found: list[Row] = []
    problem = ""
    asked = bool(query.get("topic")) or bool(query.get("id"))
    if asked:
        try:
            found = [_row(each) for each in await _find(visit, query)]
        except CommandError as error:
            problem = str(error)
    return Page(
        "messages.html",
        "Messages",
        "messages",
        {
            "asked": asked,
            "found": found,
            "problem": problem,
            "query": {"topic": "", "by": "latest", "count": str(COUNTS[0]), **query},
            "counts": COUNTS,
            "turns": _turns(query, found),
        },
    )


async def _find(visit: Visit, query: Mapping[str, str]) -> list[ReceivedMessage]:
    by = one_of(query, "by", BY) or BY[0]
    count = whole(query, "count", 1, COUNTS[-1]) or COUNTS[0]
    if by == "id":
        return await _by_id(visit, query)
    topic = checked(topic_name, query, "topic")
    if by == "key":
        key = query.get("key", "").strip()
        if not key:
            raise UsageError("key is missing")
        return await find_by_key(visit.admin, topic, key, count=count, since=0, until=INT64_MAX)
    queue = whole(query, "queue", 0, STATE.queues_max - 1)
    place = Window(queue=queue, broker=query.get("broker", "").strip())
    if by == "offset":
        offset = whole(query, "offset", 0, INT64_MAX) or 0
        return await _peeked(visit, topic, replace(place, offset=offset), count)
    if by == "time":
        with UsageError.instead_of(ValueError):
            start = timestamp_ms(query.get("time", "") or "1h")
        return await _peeked(visit, topic, replace(place, start=start), count)
    found = await _peeked(
        visit, topic, replace(place, last=count, bytes_max=CONSOLE.page_bytes_max), count
    )
    return found[::-1]


def _turns(query: Mapping[str, str], found: Sequence[Row]) -> list[tuple[str, str]]:
    """Links to the messages before and after, for consecutive messages of one queue."""
    places = {(each.broker, each.queue_id) for each in found}
    if len(places) != 1 or query.get("by", BY[0]) not in BY[:2]:
        return []
    (broker, queue_id), offsets = *places, [each.offset for each in found]
    count = int(query.get("count") or COUNTS[0])
    same = {**query, "by": "offset", "broker": broker, "queue": str(queue_id)}
    earlier = {**same, "offset": str(max(min(offsets) - count, 0))}
    later = {**same, "offset": str(max(offsets) + 1)}
    return [
        *([("Earlier", urlencode(earlier))] if min(offsets) > 0 else []),
        ("Later", urlencode(later)),
    ]


async def _by_id(visit: Visit, query: Mapping[str, str]) -> list[ReceivedMessage]:
    text = query.get("id", "").strip().upper()
    if not MESSAGE_ID.fullmatch(text):
        raise UsageError("an id has 32 hexadecimal digits")
    if query.get("topic"):
        topic = checked(topic_name, query, "topic")
        found = await find_by_unique_key(visit.admin, topic, text)
        if found:
            return found
    return await find_by_id(visit.admin, text)


async def _peeked(visit: Visit, topic: str, window: Window, count: int) -> list[ReceivedMessage]:
    found: list[ReceivedMessage] = []
    size = 0
    looking = Peek(visit.admin, topic, window).messages()
    try:
        async for message in looking:
            found.append(message)
            size += len(message.raw_body)
            if len(found) >= count or size > CONSOLE.page_bytes_max:
                break
    finally:
        await looking.aclose()
    return found


def _row(message: ReceivedMessage) -> Row:
    return Row(
        message.queue.broker,
        message.queue.queue_id,
        message.queue_offset,
        message.store_timestamp,
        message.message_id,
        " ".join(message.keys),
        message.tags,
        len(message.raw_body),
        preview(message),
    )


def preview(message: ReceivedMessage) -> str:
    """The beginning of the body, as text if it looks like text."""
    try:
        body = message.body[: 4 * PREVIEW_SIZE]
    except UndecodableBodyError:
        return ""
    text = body.decode(errors="replace")
    if text.count("\ufffd") > 4:
        return body[: PREVIEW_SIZE // 3].hex(" ")
    return text[:PREVIEW_SIZE]


async def message(visit: Visit) -> Page:
    """The page of one message, by queue and offset. Raises :class:`CommandError` if there is
    none."""
    query = visit.query
    topic, broker = checked(topic_name, query, "topic"), query.get("broker", "")
    queue = whole(query, "queue", 0, STATE.queues_max - 1)
    offset = whole(query, "offset", 0, INT64_MAX)
    if queue is None or offset is None or not broker:
        raise UsageError("the place of the message is missing")
    window = Window(offset=offset, queue=queue, broker=broker)
    found = await _peeked(visit, topic, window, 1)
    if not found or found[0].queue_offset != offset:
        raise CommandError(f"there is no message at offset {offset} of queue {queue} of {topic}")
    (one,) = found
    try:
        body = one.body
    except UndecodableBodyError as error:
        body = one.raw_body
        note = f"{error}; this is the body as stored"
    else:
        note = ""
    if len(body) > CONSOLE.body_bytes_shown_max:
        note = f"the first {CONSOLE.body_bytes_shown_max:,} of {len(body):,} bytes"
    form = one_of(query, "as", FORMS) or ("json" if as_json(body) else "text")
    return Page(
        "message.html",
        f"Message {one.message_id}",
        "messages",
        {
            "message": one,
            "broker": broker,
            "size": len(body),
            "form": form,
            "forms": FORMS,
            "body": body_as(form, body),
            "note": note,
            "command": f"dledger message get {one.message_id}",
        },
    )


def as_json(body: bytes) -> str:
    """The body as indented JSON; empty if it is not JSON."""
    if len(body) > CONSOLE.body_bytes_shown_max or body[:1] not in (b"{", b"["):
        return ""
    try:
        return json.dumps(json.loads(body), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return ""


def body_as(form: str, body: bytes) -> str:
    """The body in one of :data:`FORMS`."""
    if form == "hex":
        return hex_dump(body[: CONSOLE.body_bytes_shown_max])
    if form == "json":
        return as_json(body) or "(this body is no JSON object or list)"
    return body[: CONSOLE.body_bytes_shown_max].decode(errors="replace")


def hex_dump(data: bytes) -> str:
    """Lines of sixteen bytes: offset, bytes, and printable ASCII characters."""
    lines = []
    for start in range(0, len(data), _HEX_COLUMNS):
        part = data[start : start + _HEX_COLUMNS]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{start:08x}  {part.hex(' '):<{3 * _HEX_COLUMNS - 1}}  {shown}")
    return "\n".join(lines)


async def traces(visit: Visit) -> Page:
    """The page of a message's trace."""
    message_id = visit.query.get("id", "").strip().upper()
    events: list[dict[str, Any]] = []
    problem = ""
    if message_id:
        try:
            events = [
                {
                    "time_ms": event.time_ms,
                    "event": EVENTS[event.kind],
                    "group": event.group,
                    "topic": event.topic,
                    "cost_ms": event.cost_ms,
                    "failed": event.success is False,
                    "outcome": event.outcome or OUTCOMES[event.success] or "",
                    "retries": event.retries,
                }
                for event in await trace_events(visit.admin, message_id)
            ]
        except CommandError as error:
            problem = str(error)
    return Page(
        "traces.html",
        "Traces",
        "traces",
        {
            "id": message_id,
            "events": events,
            "topic": next((each["topic"] for each in events if each["topic"]), ""),
            "problem": problem,
        },
    )
