"""The bytes of a send request: header fields of 310 and 320, and the body of a batch.

A batch's body is one message after the other (``MessageDecoder.encodeMessages``), big-endian::

    i32  size of this message with these four bytes
    i32  magic 0, i32 crc 0
    i32  flag
    i32  body size, body
    i16  properties size, properties

The common parts of all requests to a topic are encoded once, and so are those of all messages with
equal properties. Unique keys have a fixed size, so the properties of such messages have one too.
Each message then costs two small formats besides its body.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct

from broker.client.client_identity import UNIQUE_KEY_SIZE
from broker.client.errors import IllegalMessageError
from broker.client.message import BODY_SIZE_MAX, PROPERTY_UNIQUE_KEY, Bytes, Message
from broker.remoting.protocol.codes import RequestCode
from broker.remoting.protocol.fixed_headers import RequestTemplate, TemplateValues, json_text

AUTO_CREATE_TOPIC = "TBW102"

_HEAD = Struct(">iiiii")
_I16 = Struct(">h")
_FIXED_SIZE = _HEAD.size + _I16.size
_PROPERTIES = f"{PROPERTY_UNIQUE_KEY}\x01%b\x02%b"
"""The properties: the unique key, then all others as JSON."""

KEY_PROPERTY_SIZE = len(PROPERTY_UNIQUE_KEY) + UNIQUE_KEY_SIZE + 2
"""The size of a unique key among the properties, in bytes."""


class SendTemplates:
    """The common part of the requests that send to one topic (``SendMessageRequestHeaderV2``).

    The queue id comes last, because a retry may change it; before it come the values of
    :func:`single_values` and :func:`batch_values`.
    """

    __slots__ = ("batch", "single")

    def __init__(self, group: str, topic: str, default_queues: int) -> None:
        shared = {
            "a": group.replace("%", "%%"),
            "b": topic.replace("%", "%%"),
            "c": AUTO_CREATE_TOPIC,
            "d": str(default_queues),
        }
        self.single = RequestTemplate(
            RequestCode.SEND_MESSAGE_V2,
            {**shared, "f": "%d", "g": "%d", "h": "%d", "i": _PROPERTIES, "e": "%d"},
        )
        self.batch = RequestTemplate(
            RequestCode.SEND_BATCH_MESSAGE,
            {**shared, "f": "%d", "g": "%d", "h": "0", "m": "true", "e": "%d"},
        )


def single_values(message: Message, unique_key: str, born_ms: int, sys_flag: int) -> TemplateValues:
    """The values for a request 310, without the queue id."""
    properties = message.property_bytes
    text = _text_of(properties) if properties else b""
    return sys_flag, born_ms, message.flag, unique_key.encode(), text


def batch_values(born_ms: int, sys_flag: int) -> TemplateValues:
    """The values for a request 320, without the queue id. ``sys_flag`` is that of all messages."""
    return sys_flag, born_ms


@lru_cache(maxsize=256)  # many messages have the same properties
def _text_of(properties: bytes) -> bytes:
    return json_text(properties.decode())


def batch_body(messages: Sequence[Message], key_prefix: str, first_key: int) -> bytes:
    """The body of a request 320. Raises :class:`IllegalMessageError` for messages that may not be
    in a batch.

    All messages must have one topic and one compression, because only the header of the request
    names them. The unique keys are ``key_prefix`` with the numbers from ``first_key`` on.
    """
    pack_head = _HEAD.pack
    parts: list[Bytes] = []
    common: bytes | None = None
    tail = b""
    properties_size = 0
    number = first_key
    topic, compressed = messages[0].topic, messages[0].compressed
    for message in messages:
        body = message.body
        if message.property_bytes is not common:
            common = message.property_bytes
            properties_size = KEY_PROPERTY_SIZE + len(common)
            tail = _I16.pack(properties_size) + f"{PROPERTY_UNIQUE_KEY}\x01{key_prefix}".encode()
        if message.topic != topic:
            raise IllegalMessageError(
                f"a batch has messages of one topic, not of {topic} and {message.topic}"
            )
        if message.compressed != compressed:
            raise IllegalMessageError("the messages of a batch are compressed alike, or not at all")
        if message.delay_level > 0:
            raise IllegalMessageError("a message of a batch cannot have a delay level")
        size = _FIXED_SIZE + len(body) + properties_size
        parts += (
            pack_head(size, 0, 0, message.flag, len(body)),
            body,
            b"%b%012X\x02%b" % (tail, number, common),
        )
        number += 1
    encoded = b"".join(parts)
    if len(encoded) > BODY_SIZE_MAX:
        raise IllegalMessageError(
            f"a batch of {len(messages)} messages has {len(encoded)} bytes, "
            f"the limit is {BODY_SIZE_MAX}"
        )
    return encoded


def batched_size(message: Message) -> int:
    """The bytes of the message in a batch."""
    return _FIXED_SIZE + len(message.body) + KEY_PROPERTY_SIZE + len(message.property_bytes)
