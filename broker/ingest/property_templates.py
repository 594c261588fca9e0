"""Staging what producers send, with the least work for each message.

The properties of a producer's messages differ in their unique key and are else the same over and
over: ``UNIQ_KEY`` with 32 characters between pairs such as ``WAIT true`` and ``TAGS a``. What they
say but for that key, their *shape*, is therefore read once and remembered: what of it is stored,
the code of the tag, the words of the keys.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c
from isal.isal_zlib import crc32

from broker.limits import PRODUCE
from broker.remoting.protocol.send_message_header import (
    PROPERTIES_SIZE_MAX,
    check_keys,
    storable_properties,
)
from store.io.filesystem import Bytes
from store.message.properties import NAME_END, PAIR_END, UNIQUE_KEY
from store.message.record import (
    BORN,
    NEVER_TRIED,
    TRIED,
    StagedMessage,
    derive,
    key_prefix,
    record_size,
    tag_and_keys,
)

CLUSTER = b"CLUSTER"
REPLY_TO = b"REPLY_TO_CLIENT" + NAME_END
"""A message with this property is a request. RocketMQ's clients find where to send their reply by
the property ``CLUSTER``, which its brokers put on every message."""

_UNIQUE_KEY_MARK = UNIQUE_KEY + NAME_END

SIZE = Struct(">h")
"""Of the properties, in a batch."""


class Shape(NamedTuple):
    """What properties say apart from their unique key."""

    before: bytes
    after: bytes
    """What is stored before and after the pair of the unique key."""

    changed: bool
    """Whether that is less than was sent."""

    tags_code: int
    words: tuple[bytes, ...]
    """Of the keys."""


class Likeness(NamedTuple):
    """What the properties of messages share that are of one shape and of one size.

    With all that a batch has beside them: the two bytes of the size come before.
    """

    size: int
    before: bytes
    after: bytes
    """What was sent before and after the unique key."""

    stored_before: bytes
    stored_after: bytes
    changed: bool
    """Whether that is not what was sent."""

    tags_code: int


class Origin(NamedTuple):
    """What the messages of one request have in common."""

    born: bytes
    tried: bytes
    """As in a :class:`~store.message.record.StagedMessage`."""

    key_prefix: int
    fixed_size: int
    """Of a record without body and properties."""


def origin(
    topic: str, sys_flag: int, born_timestamp: int, born_host: bytes, reconsume_times: int
) -> Origin:
    """What the messages have in common whose request says so."""
    prefix, fixed_size = topic_constants(topic)
    born = BORN.pack(sys_flag, born_timestamp, born_host)
    tried = TRIED.pack(reconsume_times, 0) if reconsume_times else NEVER_TRIED
    return _new(Origin, (born, tried, prefix, fixed_size))


@lru_cache(maxsize=65536)
def topic_constants(topic: str) -> tuple[int, int]:
    """The key prefix of a topic, and the size of its records without body and properties."""
    return key_prefix(topic), record_size(topic, 0, 0)


class Stager:
    """Makes staged messages of what was sent."""

    def __init__(
        self, cluster: str, storable: Callable[[bytes], bytes] = storable_properties
    ) -> None:
        """``cluster`` is what requests are told of it, for whoever answers them; ``storable`` tells
        which of the properties that were sent are stored."""
        self._storable = storable
        self._cluster = CLUSTER + NAME_END + cluster.encode() + PAIR_END
        self._shapes: dict[tuple[bytes, bytes, bytes], Shape] = {}

    def stage(self, of: Origin, flag: int, body: Bytes, properties: bytes) -> StagedMessage:
        """The staged message, the same that :func:`~store.message.record.stage_message` makes of
        the properties that are stored.

        Raises :class:`~broker.remoting.protocol.errors.RequestError` for properties that may not
        be.
        """
        born, tried, prefix, fixed_size = of
        before, mark, rest = properties.partition(_UNIQUE_KEY_MARK)
        unique, end, after = rest.partition(PAIR_END)
        shape = self._shapes.get((before, mark, after))
        if shape is None or len(properties) > PROPERTIES_SIZE_MAX:
            if mark and before and not before.endswith(PAIR_END):
                # Another property, whose name ends like that of the unique key.
                properties = self._storable(properties)
                check_keys(tag_and_keys(properties)[1], len(properties))
                code, hashes = derive(prefix, properties)
                size = fixed_size + len(body) + len(properties)
                body_crc = crc32(body) & 0x7FFFFFFF
                return StagedMessage(
                    size, body, properties, flag, born, tried, body_crc, code, hashes
                )
            shape = self._learn(properties, before, mark, after)
        stored_before, stored_after, changed, code, words = shape
        if changed:
            properties = stored_before + mark + unique + end + stored_after
        if words:
            hashes = tuple([crc32c(word, prefix) for word in words])
            if unique:
                hashes = (crc32c(unique, prefix), *hashes)
        else:
            hashes = (crc32c(unique, prefix),) if unique else ()
        return _new(
            StagedMessage,
            (
                fixed_size + len(body) + len(properties),
                body,
                properties,
                flag,
                born,
                tried,
                crc32(body) & 0x7FFFFFFF,
                code,
                hashes,
            ),
        )

    def likeness(self, properties: bytes) -> Likeness | None:
        """What messages share with one of these properties, which has just been staged.

        None where there is no unique key, or where its shape is not remembered.
        """
        before, mark, rest = properties.partition(_UNIQUE_KEY_MARK)
        unique, end, after = rest.partition(PAIR_END)
        shape = self._shapes.get((before, mark, after))
        if shape is None or not (unique and end):
            return None
        size = len(properties)
        return Likeness(
            SIZE.size + size,
            SIZE.pack(size) + before + mark,
            end + after,
            shape.before + mark,
            end + shape.after,
            shape.changed,
            shape.tags_code,
        )

    def _learn(self, properties: bytes, before: bytes, mark: bytes, after: bytes) -> Shape:
        if len(properties) > PROPERTIES_SIZE_MAX:
            self._storable(properties)  # says what is wrong
        stored_before, stored_after = self._storable(before), self._storable(after)
        is_request = REPLY_TO in before or REPLY_TO in after
        if is_request and len(properties) + len(self._cluster) <= PROPERTIES_SIZE_MAX:
            stored_before = self._cluster + stored_before
        changed = (stored_before, stored_after) != (before, after)
        code, words = tag_and_keys(before + after)
        if words:
            check_keys(words, len(properties))
        shape = Shape(stored_before, stored_after, changed, code, words)
        # Where each message has keys of its own, or another name to reply to with, to remember
        # that would be for nothing.
        if not words and not is_request and len(properties) <= PRODUCE.shape_bytes_max:
            if len(self._shapes) >= PRODUCE.shapes_max:
                self._shapes.clear()
            self._shapes[before, mark, after] = shape
        return shape


# The constructor that ``NamedTuple`` makes is a function of Python around this one.
_new = tuple.__new__
