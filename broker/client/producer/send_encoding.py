"""The bytes of a send request: header fields of 310 and 320, and the body of a batch.

A batch's body is one message after the other (``MessageDecoder.encodeMessages``), big-endian::

    i32  size of this message, these four bytes included
    i32  magic 0, i32 crc 0
    i32  flag
    i32  body size, body
    i16  properties size, properties

The common part of all requests to a topic is encoded once, and so is that of all messages of a
kind. Unique keys have a fixed size, so the properties of such messages have one too. Each message
then costs two small formats beside its body.
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
"""The unique key's, and all others as JSON."""

KEY_PROPERTY_SIZE = len(PROPERTY_UNIQUE_KEY) + UNIQUE_KEY_SIZE + 2
"""The size of a unique key among the properties, in bytes."""


class SendTemplates:
    """The common part of the requests that send to one topic (``SendMessageRequestHeaderV2``).

    The id of the queue, which a retry may change, comes last; before it the values of
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
            {**shared, "f": "0", "g": "%d", "h": "0", "m": "true", "e": "%d"},
        )


def single_values(message: Message, unique_key: str, born_ms: int, sys_flag: int) -> TemplateValues:
    """The values for a 310, without the queue."""
    properties = message.property_bytes
    text = _text_of(properties) if properties else b""
    return sys_flag, born_ms, message.flag, unique_key.encode(), text


def batch_values(born_ms: int) -> TemplateValues:
    """The values for a 320, without the queue."""
    return (born_ms,)


@lru_cache(maxsize=256)  # messages of a kind have the same
def _text_of(properties: bytes) -> bytes:
    return json_text(properties.decode())


def batch_body(messages: Sequence[Message], key_prefix: str, first_key: int) -> bytes:
    """The body of a 320. Raises :class:`IllegalMessageError` if a batch may not hold it.

    The request names one topic, and the body names none, so all must be of the first one's. The
    unique keys are ``key_prefix`` and the numbers from ``first_key`` on.
    """
    pack_head = _HEAD.pack
    parts: list[Bytes] = []
    common: bytes | None = None
    tail = b""
    properties_size = 0
    number = first_key
    topic = messages[0].topic
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
    """The bytes that the message takes in a batch."""
    return _FIXED_SIZE + len(message.body) + KEY_PROPERTY_SIZE + len(message.property_bytes)
