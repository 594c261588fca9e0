"""Converts messages of gRPC clients to requests for ingest."""

from __future__ import annotations

import asyncio
import hashlib
import re
import zlib
from collections.abc import Callable, Iterable
from typing import NamedTuple

from google.protobuf.timestamp_pb2 import Timestamp

from broker.grpc import property_names as names
from broker.grpc.call import name_of
from broker.grpc.protocol.definition_pb2 import (
    Code,
    DigestType,
    Encoding,
    Message,
    MessageType,
    SystemProperties,
)
from broker.grpc.statuses import BadCallError
from broker.ingest.send_request import SendOptions, SendRequest
from broker.limits import BODY_LIMITS, GRPC
from store.message.properties import encode_properties
from store.message.record import PROPERTIES_BYTES_MAX
from store.quoting import quoted

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_BROKEN_KEY = re.compile(r"[\x00-\x20\x7f]")
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS
_MS_MAX = 1 << 53
"""Format: the most milliseconds that JSON and doubles represent exactly."""

_PROPERTIES_MAX = PROPERTIES_BYTES_MAX // 2
"""Format: a key takes two bytes or more with its separator, a property three."""

_PROPERTY_BYTES = 112
"""What a decoded property takes beside its text, as measured; a key takes half of that."""

PROPERTIES_PER_TURN = 4096
"""Pace: properties that are converted in one turn of the event loop: a few milliseconds of work."""

_TYPES = {
    MessageType.MESSAGE_TYPE_UNSPECIFIED,
    MessageType.NORMAL,
    MessageType.FIFO,
    MessageType.DELAY,
    MessageType.TRANSACTION,
}


class Received(NamedTuple):
    """A message for ingest."""

    request: SendRequest
    body: bytes
    message_id: str
    half: bool


async def received_messages(
    messages: Iterable[Message], now_ms: int, body_size_max: int, hold: Callable[[int], None]
) -> list[Received]:
    """The messages of one send for ingest; see :func:`received_message`. Other tasks get a turn
    after many properties: a send of 4 MiB may have half a million of them.

    ``hold`` counts the bytes of all bodies that were decompressed, and those that the properties
    take beside their text. It may refuse them.
    """
    found: list[Received] = []
    inflated = properties = in_turn = 0
    for message in messages:
        if in_turn >= PROPERTIES_PER_TURN:
            in_turn = 0
            await asyncio.sleep(0)
        count = _properties_of(message)
        in_turn += count
        properties += count
        hold(inflated + _PROPERTY_BYTES * properties)
        received = received_message(message, now_ms, body_size_max)
        if message.system_properties.body_encoding == Encoding.GZIP:
            inflated += len(received.body)
            if inflated > BODY_LIMITS.inflated_size:
                raise BadCallError(
                    Code.PAYLOAD_TOO_LARGE,
                    "the bodies of one send may have at most "
                    f"{BODY_LIMITS.inflated_size} bytes after decompression",
                )
            hold(inflated + _PROPERTY_BYTES * properties)
        found.append(received)
    return found


def received_message(message: Message, now_ms: int, body_size_max: int) -> Received:
    """The message for ingest. Raises :class:`~broker.grpc.statuses.BadCallError` for an invalid
    message. Ingest checks the message type of the topic and the size."""
    system = message.system_properties
    topic = name_of(message.topic)
    kind = _checked_type(system)
    body = _body(message, body_size_max)
    properties = _user_properties(message)
    properties |= _system_properties(system, topic, kind)
    try:
        encoded = encode_properties(properties)
    except (ValueError, UnicodeEncodeError) as error:
        raise BadCallError(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, str(error)) from error
    group = system.message_group.encode() if kind == MessageType.FIFO else b""
    request = SendRequest(
        topic,
        -1,
        sys_flag=_HALF_FLAG if kind == MessageType.TRANSACTION else 0,
        born_timestamp=milliseconds(system.born_timestamp) or now_ms,
        flag=0,
        reconsume_times=0,
        properties=encoded,
        options=SendOptions(message_group=group),
    )
    return Received(request, body, system.message_id, kind == MessageType.TRANSACTION)


def _properties_of(message: Message) -> int:
    """The number of properties and keys. Raises :class:`~broker.grpc.statuses.BadCallError` for
    more than can be stored, before they are looked at one by one."""
    count = len(message.user_properties) + len(message.system_properties.keys)
    if count > _PROPERTIES_MAX:
        raise BadCallError(
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
            f"{count} properties and keys take more than {PROPERTIES_BYTES_MAX} bytes, "
            "which is the most",
        )
    return count


_HALF_FLAG = 4
"""RocketMQ's ``TRANSACTION_PREPARED_TYPE``."""


def _checked_type(system: SystemProperties) -> MessageType:
    """The type of the message: as given, or else by its properties."""
    kind = system.message_type
    if kind not in _TYPES:
        known = kind in MessageType.values()
        raise BadCallError(
            Code.UNSUPPORTED if known else Code.BAD_REQUEST,
            f"messages of the type {MessageType.Name(kind) if known else kind} are not supported",
        )
    grouped, timed = bool(system.message_group), system.HasField("delivery_timestamp")
    if kind == MessageType.MESSAGE_TYPE_UNSPECIFIED:
        kind = MessageType.DELAY if timed else MessageType.FIFO if grouped else MessageType.NORMAL
    fits = {
        MessageType.NORMAL: not grouped and not timed,
        MessageType.FIFO: grouped and not timed,
        MessageType.DELAY: timed and not grouped,
        MessageType.TRANSACTION: not grouped and not timed,
    }
    if not fits[kind]:
        raise BadCallError(
            Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            f"a message of the type {MessageType.Name(kind)} does not have this combination of "
            f"message group {quoted(system.message_group)} and delivery time",
        )
    return kind


def _system_properties(system: SystemProperties, topic: str, kind: MessageType) -> dict[str, str]:
    if not system.message_id or len(system.message_id) > GRPC.name_size_max:
        raise BadCallError(
            Code.ILLEGAL_MESSAGE_ID, "the message has no id, or one that is too long"
        )
    found = {names.UNIQUE_KEY: system.message_id}
    if system.HasField("tag") and system.tag:
        if _CONTROL.search(system.tag) or "|" in system.tag or not system.tag.strip():
            raise BadCallError(Code.ILLEGAL_MESSAGE_TAG, f"no tag is {quoted(system.tag)}")
        found[names.TAGS] = system.tag
    if system.keys:
        for key in system.keys:
            if not key or _BROKEN_KEY.search(key):
                raise BadCallError(Code.ILLEGAL_MESSAGE_KEY, f"no key is {quoted(key)}")
        found[names.KEYS] = " ".join(system.keys)
    if system.message_group:
        group = system.message_group
        if not group.strip() or len(group) > GRPC.message_group_size_max or _CONTROL.search(group):
            raise BadCallError(Code.ILLEGAL_MESSAGE_GROUP, f"no message group is {quoted(group)}")
        found[names.MESSAGE_GROUP] = group
    if system.trace_context:
        found[names.TRACE_CONTEXT] = system.trace_context
    if kind == MessageType.DELAY:
        found[names.DELIVER_MS] = str(_deliver_ms(system.delivery_timestamp))
    if kind == MessageType.TRANSACTION:
        # RocketMQ's proxy has no producer groups: any producer of the topic may get the check-back.
        found |= {names.HALF: "true", names.PRODUCER_GROUP: topic}
        if system.HasField("orphaned_transaction_recovery_duration"):
            seconds = system.orphaned_transaction_recovery_duration.seconds
            if not 0 <= seconds <= GRPC.recovery_seconds_max:
                raise BadCallError(Code.BAD_REQUEST, f"no transaction is asked after {seconds} s")
            found[names.IMMUNITY_SECONDS] = str(seconds)
    return found


def _deliver_ms(timestamp: Timestamp) -> int:
    found = milliseconds(timestamp)
    if found is None:
        raise BadCallError(Code.ILLEGAL_DELIVERY_TIME, "the delivery time is none")
    return found


def milliseconds(timestamp: Timestamp) -> int | None:
    """Milliseconds since 1970; None for an invalid time."""
    found = timestamp.seconds * 1000 + timestamp.nanos // 1_000_000
    return found if 0 < found < _MS_MAX else None


def _user_properties(message: Message) -> dict[str, str]:
    found = dict(message.user_properties)
    for name in found:
        if not name or name in names.RESERVED or _CONTROL.search(name):
            raise BadCallError(
                Code.ILLEGAL_MESSAGE_PROPERTY_KEY, f"no property of a client is {quoted(name)}"
            )
    return found


def _body(message: Message, size_max: int) -> bytes:
    system, body = message.system_properties, message.body
    if not body:
        raise BadCallError(Code.MESSAGE_BODY_EMPTY, "the message has no body")
    _check_digest(system, body)
    if system.body_encoding == Encoding.GZIP:
        # Stored decompressed: clients of RocketMQ 4 do not know gzip.
        return _inflated(body, size_max)
    if system.body_encoding not in {Encoding.IDENTITY, Encoding.ENCODING_UNSPECIFIED}:
        raise BadCallError(Code.BAD_REQUEST, f"there is no encoding {system.body_encoding}")
    return body


def _inflated(body: bytes, size_max: int) -> bytes:
    inflater = zlib.decompressobj(_GZIP_OR_ZLIB)
    try:
        # One byte more than fits, so that ingest refuses it.
        found = inflater.decompress(body, size_max + 1)
    except zlib.error as error:
        raise BadCallError(Code.MESSAGE_CORRUPTED, f"the body is not gzip: {error}") from None
    if len(found) <= size_max and not inflater.eof:
        raise BadCallError(Code.MESSAGE_CORRUPTED, "the gzip body is cut short")
    return found


def _check_digest(system: SystemProperties, body: bytes) -> None:
    """Checks the digest of the body as sent. Without a digest nothing is checked."""
    kind, given = system.body_digest.type, system.body_digest.checksum
    if kind == DigestType.DIGEST_TYPE_UNSPECIFIED:
        return
    if kind not in DigestType.values():
        raise BadCallError(Code.BAD_REQUEST, f"there is no digest type {kind}")
    if body_digest(kind, body) != given.upper().rjust(8, "0"):
        raise BadCallError(Code.MESSAGE_CORRUPTED, "the body does not match its digest")


def body_digest(kind: DigestType, body: bytes) -> str:
    """A digest in RocketMQ's form: hexadecimal, upper case."""
    if kind == DigestType.CRC32:
        return f"{zlib.crc32(body):08X}"
    made = hashlib.md5(body) if kind == DigestType.MD5 else hashlib.sha1(body)
    return made.hexdigest().upper()
