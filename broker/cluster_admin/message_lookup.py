"""Looks up messages by id and by key, and the trace of a message."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping

from broker.admin.message_trace import TRACE_TOPIC, TraceEvent, TraceKind, trace_of
from broker.client.errors import UndecodableBodyError
from broker.client.message import MessageQueue
from broker.client.received_message import ReceivedMessage
from broker.cluster_admin.admin_client import AdminClient, NoLeaderError, NoTopicError, RefusedError
from broker.cluster_admin.broker_names import unregistered
from broker.command_error import CommandError
from broker.remoting.protocol.codes import MISSING, RequestCode, ResponseCode
from broker.remoting.protocol.ext_fields import INT64_MAX
from broker.remoting.protocol.frame import Frame
from store.errors import StoreError
from store.message.record import decode_record, record_bounds

MESSAGE_ID = re.compile(r"[0-9A-Fa-f]{32}")
QUERY_MESSAGES = 64
OUTCOMES = {True: "success", False: "failed", None: None}
EVENTS = {
    TraceKind.SENT: "sent",
    TraceKind.CONSUMING: "consumption begins",
    TraceKind.CONSUMED: "consumption ends",
    TraceKind.TRANSACTION_ENDED: "transaction ends",
}


async def trace_events(admin: AdminClient, message_id: str) -> list[TraceEvent]:
    """The trace events of a message, by time. Raises :class:`CommandError` if no client has sent
    traces, or if they cannot be decoded."""
    try:
        told = await find_by_key(
            admin, TRACE_TOPIC, message_id, count=QUERY_MESSAGES, since=0, until=INT64_MAX
        )
    except NoTopicError as error:
        if error.gone:
            raise
        raise CommandError(
            "no client has sent traces; switch on message trace in the clients"
        ) from error
    try:
        return trace_of(message_id, [message.body for message in told])
    except (UndecodableBodyError, ValueError) as error:
        raise CommandError(f"a trace of {message_id} cannot be read: {error}") from error


async def find_by_id(admin: AdminClient, message_id: str) -> list[ReceivedMessage]:
    """The message at the position in the id.

    The id names the node that stored the message. That node may be gone, but every member of its
    group has the same bytes at the same position. So the leaders are asked, and the id in the
    answer decides.

    Raises if a leader that may have the message cannot be asked, or refuses for another reason than
    a missing message: the message may be damaged on its disk.
    """
    host = ipaddress.IPv4Address(int(message_id[:8], 16))
    address = f"{host}:{int(message_id[8:16], 16)}"
    position = int(message_id[16:], 16)
    if position > INT64_MAX:
        return []
    names = await admin.broker_names()
    names.sort(key=lambda name: address not in name.addresses.values())
    leaderless: list[str] = []
    refusal: RefusedError | None = None
    for name in names:
        if name.master is None:
            leaderless.append(name.name)
            continue
        try:
            answer = await admin.ask(
                name.master, RequestCode.VIEW_MESSAGE_BY_ID, {"offset": position}
            )
        except RefusedError as error:
            if MISSING not in error.ext:
                refusal = refusal or error
            continue
        found = [m for m in _messages(answer, name.name) if m.message_id == message_id]
        if found:
            return found
    if leaderless:
        raise NoLeaderError(f"{', '.join(leaderless)}, which may have it, has no leader now")
    if refusal is not None:
        raise refusal
    if gone := await admin.unregistered():
        raise CommandError(f"{unregistered(gone)}, which may have it; start its nodes")
    return []


async def find_by_unique_key(admin: AdminClient, topic: str, key: str) -> list[ReceivedMessage]:
    """The messages with this unique key, usually one."""
    found = await _query(admin, topic, key, {"_UNIQUE_KEY_QUERY": True, "maxNum": QUERY_MESSAGES})
    return [message for message in found if message.unique_key.upper() == key]


async def find_by_key(
    admin: AdminClient, topic: str, key: str, *, count: int, since: int, until: int
) -> list[ReceivedMessage]:
    """The messages with this key that were stored between two times (ms), newest first. The index
    has only hashes of keys."""
    options = {"maxNum": count, "beginTimestamp": since, "endTimestamp": until}
    found = await _query(admin, topic, key, options)
    return [message for message in found if key in (*message.keys, message.unique_key)]


async def _query(
    admin: AdminClient, topic: str, key: str, options: Mapping[str, object]
) -> list[ReceivedMessage]:
    found: list[ReceivedMessage] = []
    for name, master in (await admin.route(topic)).masters.items():
        ext = {
            "topic": topic,
            "key": key,
            "beginTimestamp": 0,
            "endTimestamp": INT64_MAX,
            **options,
        }
        try:
            answer = await admin.ask(master, RequestCode.QUERY_MESSAGE, ext)
        except RefusedError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                continue
            raise
        found += _messages(answer, name)
    return found


def _messages(answer: Frame, broker: str) -> list[ReceivedMessage]:
    body = bytes(answer.body)
    try:
        messages = []
        for start, _end in record_bounds(body):
            record = decode_record(body, start)
            queue = MessageQueue(record.topic, broker, record.queue_id)
            messages.append(ReceivedMessage(queue, record.queue_offset, memoryview(body), start))
    except StoreError as error:
        raise CommandError(f"the answer of {broker} cannot be read: {error}") from error
    return messages
