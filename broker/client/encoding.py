"""The bytes of a send request: header fields of 310 and 320, and the body of a batch.

A batch's body is one message after the other (``MessageDecoder.encodeMessages``), big-endian::

    i32  size of this message, these four bytes included
    i32  magic 0, i32 crc 0
    i32  flag
    i32  body size, body
    i16  properties size, properties

What all messages of a kind have in common is encoded once. A unique key is of fixed size, so the
properties of such messages are too, and each costs two small formats beside its body.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from struct import Struct

from broker.client.errors import IllegalMessageError
from broker.client.identity import UNIQUE_KEY_SIZE
from broker.client.message import BODY_SIZE_MAX, PROPERTY_UNIQUE_KEY, Bytes, Message

AUTO_CREATE_TOPIC = "TBW102"

DEFLATE_LEVEL = 5
"""As RocketMQ's clients."""

DEFLATED = "1"
"""The sysFlag of a body that zlib made smaller; clients older than 4.9.4 know no other kind."""

_HEAD = Struct(">iiiii")
_I16 = Struct(">h")
_FIXED_SIZE = _HEAD.size + _I16.size


def header_template(group: str, topic: str, default_queues: int) -> dict[str, str]:
    """The fields of ``SendMessageRequestHeaderV2`` that every send to the topic shares."""
    return {
        "a": group,
        "b": topic,
        "c": AUTO_CREATE_TOPIC,
        "d": str(default_queues),
        "f": "0",  # sysFlag
    }


def deflated(body: Bytes) -> bytes | None:
    """The body as zlib makes it, None where that is no smaller."""
    smaller = zlib.compress(body, DEFLATE_LEVEL)
    return smaller if len(smaller) < len(body) else None


def single_header(
    template: Mapping[str, str], message: Message, unique_key: str, born_ms: int
) -> dict[str, str]:
    """The fields of a 310 but for ``e``, the queue, which a retry may change."""
    return {
        **template,
        "g": str(born_ms),
        "h": str(message.flag),
        "i": f"{PROPERTY_UNIQUE_KEY}\x01{unique_key}\x02{message.property_bytes.decode()}",
    }


def batch_header(template: Mapping[str, str], born_ms: int) -> dict[str, str]:
    """The fields of a 320 but for ``e``."""
    return {**template, "g": str(born_ms), "h": "0", "m": "true"}


def batch_body(messages: Sequence[Message], key_prefix: str, first_key: int) -> bytes:
    """The body of a 320. Raises :class:`IllegalMessageError` where a batch may not hold it.

    The unique keys are ``key_prefix`` and the numbers from ``first_key`` on.
    """
    pack_head = _HEAD.pack
    parts: list[Bytes] = []
    common: bytes | None = None
    tail = b""
    properties_size = 0
    number = first_key
    for message in messages:
        body = message.body
        if message.property_bytes is not common:
            common = message.property_bytes
            properties_size = len(PROPERTY_UNIQUE_KEY) + UNIQUE_KEY_SIZE + 2 + len(common)
            tail = _I16.pack(properties_size) + f"{PROPERTY_UNIQUE_KEY}\x01{key_prefix}".encode()
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
    return (
        _FIXED_SIZE
        + len(message.body)
        + len(PROPERTY_UNIQUE_KEY)
        + UNIQUE_KEY_SIZE
        + 2
        + len(message.property_bytes)
    )
