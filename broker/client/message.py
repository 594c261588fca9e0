"""Messages to send, and the results of sends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from broker.client.client_identity import unique_keys
from broker.client.errors import IllegalMessageError
from broker.client.trace_context import trace_properties
from broker.remoting.protocol.codes import ResponseCode
from store.message.properties import encode_properties

Bytes: TypeAlias = bytes | bytearray | memoryview

BODY_SIZE_MAX = 4 * 1024 * 1024
PROPERTIES_SIZE_MAX = 32_767 - 64
"""The size is an i16 in the record; some of it is reserved for the unique key."""

PROPERTY_KEYS = "KEYS"
PROPERTY_TAGS = "TAGS"
PROPERTY_DELAY = "DELAY"
PROPERTY_DELIVER_AT = "TIMER_DELIVER_MS"
"""Milliseconds since 1970."""
PROPERTY_UNIQUE_KEY = "UNIQ_KEY"
PROPERTY_RETRY_TOPIC = "RETRY_TOPIC"
PROPERTY_CLUSTER = "CLUSTER"
"""The broker puts it on requests: the cluster to which replies go."""


class MessageQueue(NamedTuple):
    """One queue of a topic. Queues sort as in RocketMQ, because all members must assign them
    alike."""

    topic: str
    broker: str
    queue_id: int


class Message:
    """A message to send. It must not be changed: its properties are encoded once.

    ``keys``: words by which it can be looked up; ``delay_level``: 1 (1 s) to 18 (2 h), 0 for none;
    ``compressed``: the bits of SYSFLAG of a body that is compressed already
    (``store/message/compressed_body.py``), 0 for none. Raises :class:`IllegalMessageError` for
    properties that cannot be encoded, and for a flag outside an i32. A message that is made within
    a span of OpenTelemetry has the span's context.
    """

    __slots__ = ("body", "compressed", "delay_level", "flag", "property_bytes", "topic")

    def __init__(
        self,
        topic: str,
        body: Bytes,
        *,
        tags: str = "",
        keys: str | Iterable[str] = "",
        delay_level: int = 0,
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        compressed: int = 0,
    ) -> None:
        if not -(2**31) <= flag < 2**31:
            raise IllegalMessageError(f"the flag {flag} is not in the range of an i32")
        self.topic = topic
        self.body = body
        self.flag = flag
        self.compressed = compressed
        self.delay_level = delay_level
        self.property_bytes = b""
        """All properties except the unique key, as the record stores them."""
        every = {**trace_properties(), **(properties or {})}
        if tags:
            every[PROPERTY_TAGS] = tags
        if keys:
            every[PROPERTY_KEYS] = keys if isinstance(keys, str) else " ".join(keys)
        if delay_level > 0:
            every[PROPERTY_DELAY] = str(delay_level)
        if every:
            self.property_bytes = _encoded(every)

    def with_body(self, body: Bytes) -> Message:
        """The same message with another body; for many similar messages this is cheaper than new
        ones."""
        message = Message.__new__(Message)
        message.topic = self.topic
        message.body = body
        message.flag = self.flag
        message.compressed = self.compressed
        message.delay_level = self.delay_level
        message.property_bytes = self.property_bytes
        return message

    def with_properties(self, more: bytes) -> Message:
        """The same message with more properties, encoded as a record stores them."""
        message = self.with_body(self.body)
        message.property_bytes += more
        return message


class SendStatus(IntEnum):
    """All of them mean that the message is stored; this project's brokers answer only the first."""

    OK = ResponseCode.SUCCESS
    FLUSH_DISK_TIMEOUT = ResponseCode.FLUSH_DISK_TIMEOUT
    SLAVE_NOT_AVAILABLE = ResponseCode.SLAVE_NOT_AVAILABLE
    FLUSH_SLAVE_TIMEOUT = ResponseCode.FLUSH_SLAVE_TIMEOUT


SEND_STATUS_BY_CODE: dict[int, SendStatus] = {status.value: status for status in SendStatus}


class SendResult(NamedTuple):
    """An acknowledged request: one message, or a batch, which has one queue and one log entry.

    ``queue_offset`` is the offset of the first message; the others follow without a gap.
    """

    status: SendStatus
    queue: MessageQueue
    queue_offset: int
    message_count: int
    joined_message_ids: str
    """The broker's text with all offset message ids; see :meth:`message_ids`."""
    first_unique_key: str
    recall_handle: str = ""
    """The recall handle of a timed message. Empty if the answer was lost and the producer found the
    stored message."""

    @property
    def message_ids(self) -> list[str]:
        """The offset message ids, in order; only the first if the broker gives no others."""
        return self.joined_message_ids.split(",")

    @property
    def unique_keys(self) -> list[str]:
        """The UNIQ_KEYs of the messages, in order."""
        return unique_keys(self.first_unique_key, self.message_count)


def _encoded(properties: Mapping[str, str]) -> bytes:
    if PROPERTY_UNIQUE_KEY in properties:
        raise IllegalMessageError("the property UNIQ_KEY is made by the producer")
    try:
        encoded = encode_properties(properties)
    except ValueError as error:
        raise IllegalMessageError(str(error)) from None
    if len(encoded) > PROPERTIES_SIZE_MAX:
        raise IllegalMessageError(
            f"properties of {len(encoded)} bytes exceed the limit of {PROPERTIES_SIZE_MAX}"
        )
    return encoded
