"""The body of a batch request (320): messages of one topic, back to back.

Each, big-endian::

    i32 total size, i32 magic (0), i32 CRC (0), i32 flag, i32 body size, body,
    i16 properties size, properties

Most messages of a batch resemble the one before: the template
(:mod:`broker.ingest.property_templates`) and the size of their properties are the same, and so is
the size of their unique key. If the bytes before and after the key are equal too, the properties
are not parsed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any

from crc32c import crc32c
from isal.isal_zlib import crc32

from broker.errors import IllegalMessageError
from broker.ingest.property_templates import SIZE, MessageBuilder, Origin, origin
from broker.limits import PRODUCE
from store.message.properties import NAME_END, PAIR_END, UNIQUE_KEY
from store.message.record import PendingMessage
from store.message.twins import compiled_or

GROWTH_MAX = 16 << 20
"""Format: the size of a frame. It limits the bytes that the properties of the header add to all
messages of a batch."""

_START = Struct(">i8xii")
_FIXED_SIZE = _START.size + SIZE.size
_UNIQUE_KEY_START = UNIQUE_KEY + NAME_END


def decode_batch_body(
    message_builder: MessageBuilder,
    of: Origin,
    data: bytes,
    of_all: bytes = b"",
    *,
    messages_max: int = PRODUCE.batch_messages_max,
) -> list[PendingMessage]:
    """The messages of a batch, each built by ``message_builder``. The properties ``of_all`` are
    added to each message that lacks them.

    Raises :class:`~broker.errors.IllegalMessageError` if the sizes
    contradict each other, and as :meth:`~broker.ingest.property_templates.MessageBuilder.build`.
    """
    messages: list[PendingMessage] = []
    added = [pair for pair in of_all.split(PAIR_END) if pair]
    grown = keys = 0
    alike = not any(pair.startswith(_UNIQUE_KEY_START) for pair in added)
    size = len(data)
    start = 0
    while start < size:
        if size - start < _FIXED_SIZE or len(messages) >= messages_max:
            raise _no_further(start, size - start, messages_max)
        total, flag, body_size = _START.unpack_from(data, start)
        end = start + total
        body_start = start + _START.size
        body_end = body_start + body_size
        if not (body_size >= 0 and body_end + SIZE.size <= end <= size):
            raise _illegal(start, f"the size {total} does not fit a body of {body_size} bytes")
        properties = data[body_end + SIZE.size : end]
        # The size is read as unsigned: a negative one contradicts the total all the same.
        if int.from_bytes(data[body_end : body_end + SIZE.size], "big") != len(properties):
            (properties_size,) = SIZE.unpack_from(data, body_end)
            reason = f"the size {total} does not fit {properties_size} bytes of properties"
            raise _illegal(start, reason)
        joined = _joined(properties, added) if added else properties
        grown += len(joined) - len(properties)
        if grown > GROWTH_MAX:
            raise _illegal(start, f"the header's properties add more than {GROWTH_MAX} bytes")
        made = message_builder.build(of, flag, data[body_start:body_end], joined)
        keys += len(made.key_hashes)
        if keys > PRODUCE.batch_keys_max:
            raise _illegal(
                start,
                f"the messages up to here have {keys} keys, at most {PRODUCE.batch_keys_max} "
                "are allowed in one request",
            )
        messages.append(made)
        start = end
        # Usually all messages have these already: Java's clients write WAIT in both places.
        if alike and joined is properties:
            template = message_builder.batch_template(properties)
            if template is not None:
                start = take_alike(messages, data, start, messages_max, of, template)
    return messages


def take_alike_in_python(  # noqa: PLR0917 - the hot path passes them by position
    messages: list[PendingMessage],
    data: bytes,
    start: int,
    messages_max: int,
    of: tuple[bytes, bytes, int, int],
    template: tuple[Any, ...],
    /,
) -> int:
    """Adds the messages from byte ``start`` of a batch on that are of the template, an
    :class:`~broker.ingest.property_templates.BatchTemplate`, until there are ``messages_max``.
    Returns the byte at which the next one begins, whatever that is: it may be illegal.

    ``of``: an :class:`~broker.ingest.property_templates.Origin`.
    """
    born, tried, prefix, fixed_size = of
    alike_size, cut, before, after, stored_before, stored_after, changed, stored, code = template
    size = len(data)
    room = messages_max - len(messages)
    unpack_start = _START.unpack_from
    while room > 0 and size - start >= _FIXED_SIZE:
        total, flag, body_size = unpack_start(data, start)
        body_start = start + 20
        body_end = body_start + body_size
        end = start + total
        if body_size < 0 or end - body_end != alike_size or end > size:
            break
        first, unique, last = cut(data, body_end)
        if first != before or last != after or PAIR_END in unique:
            break
        body = data[body_start:body_end]
        sent = data[body_end + 2 : end]
        properties = stored_before + unique + stored_after if changed else sent
        message = (
            fixed_size + body_size + stored,
            body,
            properties,
            flag,
            born,
            tried,
            crc32(body) & 0x7FFFFFFF,
            code,
            (crc32c(unique, prefix),),
        )
        messages.append(_new(PendingMessage, message))
        start = end
        room -= 1
    return start


# The constructor that ``NamedTuple`` makes is a function of Python around this one.
_new = tuple.__new__


def _alike_sample(take: Callable[..., int]) -> tuple[int, list[PendingMessage]]:
    """Two messages of a template, and another."""
    messages: list[PendingMessage] = []
    properties = b"WAIT\x01true\x02UNIQ_KEY\x01k\x02"
    of = origin("sample", 1, 2, bytes(8), 3)
    builder = MessageBuilder("sample")
    builder.build(of, 0, b"", properties)
    template = builder.batch_template(properties)
    sent = _START.pack(22 + 4 + len(properties), 5, 4) + b"body" + SIZE.pack(len(properties))
    data = 2 * (sent + properties) + bytes(_FIXED_SIZE)
    return take(messages, data, 0, 9, of, template), messages


take_alike = compiled_or(take_alike_in_python, "take_alike", _alike_sample)


def _joined(properties: bytes, added: Sequence[bytes]) -> bytes:
    """The same object where nothing is added."""
    there = frozenset(properties.split(PAIR_END))
    missing = [pair for pair in added if pair not in there]
    if not missing:
        return properties
    between = b"" if not properties or properties.endswith(PAIR_END) else PAIR_END
    return properties + between + b"".join([pair + PAIR_END for pair in missing])


def _no_further(start: int, left: int, messages_max: int) -> IllegalMessageError:
    if left < _FIXED_SIZE:
        return _illegal(start, f"{left} bytes are left, a message has {_FIXED_SIZE}")
    return _illegal(start, f"at most {messages_max} messages are allowed in one request")


def _illegal(start: int, reason: str) -> IllegalMessageError:
    return IllegalMessageError(f"batch, byte {start}: {reason}")
