"""Builds messages to store, with little work for messages that resemble earlier ones.

The properties of a producer's messages differ in their unique key only: ``UNIQ_KEY`` with 32
characters between pairs such as ``WAIT true`` and ``TAGS a``. The rest is their *template*. It is
parsed once. Three things are kept: the bytes to store, the tags code, and the keys.

If each message has keys of its own (``KEYS``), the template leaves out the keys too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c
from isal.isal_zlib import crc32

from broker.ingest.message_properties import check_keys, storable_properties
from broker.limits import PRODUCE
from store.io.filesystem import Bytes
from store.message.properties import KEYS, NAME_END, PAIR_END, UNIQUE_KEY
from store.message.record import (
    BORN,
    NEVER_RECONSUMED,
    PROPERTIES_BYTES_MAX,
    RECONSUMED,
    PendingMessage,
    derive,
    key_prefix,
    record_size,
    tag_and_keys,
)

CLUSTER = b"CLUSTER"
REPLY_TO = b"REPLY_TO_CLIENT" + NAME_END
"""A message with this property is a request of request-reply. RocketMQ's clients address their
reply by the property ``CLUSTER``, which RocketMQ's brokers put on every message."""

_UNIQUE_KEY_MARK = UNIQUE_KEY + NAME_END
_KEYS_MARK = KEYS + NAME_END

SIZE = Struct(">h")
"""The size of the properties in a batch, as u16."""


class PropertyTemplate(NamedTuple):
    """Properties without their unique key, parsed."""

    before: bytes
    after: bytes
    """The stored properties before and after the unique key."""

    changed: bool
    """Whether that is less than was sent."""

    tags_code: int
    words: tuple[bytes, ...]
    """Of the keys."""


class KeyedTemplate(NamedTuple):
    """The meaning of properties without their unique key and without their keys."""

    stored: tuple[bytes, bytes, bytes]
    """The stored properties before the first of both, between them, and after the second."""

    changed: bool
    """Whether that is less than was sent."""

    tags_code: int


class BatchTemplate(NamedTuple):
    """What messages of one template and one size of properties share.

    With everything that a batch has beside them: the two bytes of the size come before.
    """

    size: int
    cut: Callable[[bytes, int], tuple[bytes, ...]]
    """Cuts them out of a batch: before the unique key, the key, and after it."""

    before: bytes
    after: bytes
    """The sent properties before and after the unique key."""

    stored_prefix: bytes
    stored_suffix: bytes
    changed: bool
    """Whether that is not what was sent."""

    stored_size: int
    tags_code: int


class Origin(NamedTuple):
    """The common part of the messages of one request."""

    born: bytes
    tried: bytes
    """As in a :class:`~store.message.record.PendingMessage`."""

    key_prefix: int
    fixed_size: int
    """Of a record without body and properties."""


@lru_cache(maxsize=64)  # many messages are born in the same millisecond
def origin(
    topic: str, sys_flag: int, born_timestamp: int, born_host: bytes, reconsume_times: int
) -> Origin:
    """The common part of messages, as the header of their request gives it."""
    prefix, fixed_size = topic_constants(topic)
    born = BORN.pack(sys_flag, born_timestamp, born_host)
    tried = RECONSUMED.pack(reconsume_times, 0) if reconsume_times else NEVER_RECONSUMED
    return _new(Origin, (born, tried, prefix, fixed_size))


@lru_cache(maxsize=65536)
def topic_constants(topic: str) -> tuple[int, int]:
    """The key prefix of a topic, and the size of its records without body and properties."""
    return key_prefix(topic), record_size(topic, 0, 0)


@lru_cache(maxsize=256)
def _cut_at_key(before: int, key: int, after: int) -> Callable[[bytes, int], tuple[bytes, ...]]:
    return Struct(f"{before}s{key}s{after}s").unpack_from


class MessageBuilder:
    """Makes of what was sent the messages that are stored."""

    def __init__(
        self, cluster: str, storable: Callable[[bytes], bytes] = storable_properties
    ) -> None:
        """``cluster`` is the name that requests get, so that a consumer can send a reply;
        ``storable`` selects the sent properties that are stored."""
        self._storable = storable
        self._cluster = CLUSTER + NAME_END + cluster.encode() + PAIR_END
        self._property_templates: dict[tuple[bytes, bytes, bytes], PropertyTemplate] = {}
        self._keyed_templates: dict[tuple[bytes, bytes, bytes, bool], KeyedTemplate] = {}

    def build(self, of: Origin, flag: int, body: Bytes, properties: bytes) -> PendingMessage:
        """The message to store, as :func:`~store.message.record.make_pending_message` makes it of
        the stored properties.

        Raises :class:`~broker.errors.IllegalMessageError` for properties that may not
        be.
        """
        born, tried, prefix, fixed_size = of
        before, mark, rest = properties.partition(_UNIQUE_KEY_MARK)
        unique, end, after = rest.partition(PAIR_END)
        template = self._property_templates.get((before, mark, after))
        if template is not None and len(properties) <= PROPERTIES_BYTES_MAX:
            stored_prefix, stored_suffix, changed, code, words = template
            if changed:
                properties = stored_prefix + mark + unique + end + stored_suffix
        elif mark and before and not before.endswith(PAIR_END):
            # Another property: its name ends like that of the unique key.
            properties = self._storable(properties)
            check_keys(tag_and_keys(properties)[1], len(properties))
            code, hashes = derive(prefix, properties)
            size = fixed_size + len(body) + len(properties)
            body_crc = crc32(body) & 0x7FFFFFFF
            return PendingMessage(size, body, properties, flag, born, tried, body_crc, code, hashes)
        else:
            properties, code, words = self._with_keys(
                properties, before, mark + unique + end, after
            ) or self._learned(properties, before, mark, unique + end, after)
        if words:
            hashes = tuple([crc32c(word, prefix) for word in words])
            if unique:
                hashes = (crc32c(unique, prefix), *hashes)
        else:
            hashes = (crc32c(unique, prefix),) if unique else ()
        return _new(
            PendingMessage,
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

    def with_cluster(self, properties: bytes) -> bytes:
        """The properties of a message without a known template; those of a request get the name of
        the cluster, if there is room for it."""
        if REPLY_TO in properties and len(properties) + len(self._cluster) <= PROPERTIES_BYTES_MAX:
            return self._cluster + properties
        return properties

    def batch_template(self, properties: bytes) -> BatchTemplate | None:
        """What messages share if they have one of these properties and one of them was just built.

        None if there is no unique key, or if its template is not kept.
        """
        before, mark, rest = properties.partition(_UNIQUE_KEY_MARK)
        unique, end, after = rest.partition(PAIR_END)
        template = self._property_templates.get((before, mark, after))
        if template is None or not (unique and end):
            return None
        size = len(properties)
        sent = SIZE.pack(size) + before + mark, end + after
        stored = template.before + mark, end + template.after
        return BatchTemplate(
            SIZE.size + size,
            _cut_at_key(len(sent[0]), len(unique), len(sent[1])),
            *sent,
            *stored,
            template.changed,
            len(stored[0]) + len(unique) + len(stored[1]),
            template.tags_code,
        )

    def _with_keys(
        self, properties: bytes, before: bytes, unique_pair: bytes, after: bytes
    ) -> tuple[bytes, int, tuple[bytes, ...]] | None:
        """What is stored, the tags code, and the words of the keys; None where ``KEYS`` is missing
        or the properties are of a rare kind."""
        if len(properties) > PROPERTIES_BYTES_MAX:
            return None
        keys_first = _KEYS_MARK in before
        first, mark, rest = (before if keys_first else after).partition(_KEYS_MARK)
        keys, end, last = rest.partition(PAIR_END)
        if not mark or (first and not first.endswith(PAIR_END)):
            return None
        if len(properties) - len(keys) > PRODUCE.property_template_bytes_max:
            return None
        parts = (first, last, after) if keys_first else (before, first, last)
        template = self._keyed_templates.get((*parts, keys_first))
        if template is None:
            others = b"".join(parts)
            if _KEYS_MARK in others or REPLY_TO in others:
                return None
            stored = (self._storable(parts[0]), self._storable(parts[1]), self._storable(parts[2]))
            template = KeyedTemplate(stored, stored != parts, tag_and_keys(others)[0])
            if len(self._keyed_templates) >= PRODUCE.property_templates_max:
                self._keyed_templates.clear()
            self._keyed_templates[*parts, keys_first] = template
        words = tuple(keys.split())
        check_keys(words, len(properties))
        if template.changed:
            one, two, three = template.stored
            pair = mark + keys + end
            properties = b"".join(
                (one, pair, two, unique_pair, three)
                if keys_first
                else (one, unique_pair, two, pair, three)
            )
        return properties, template.tags_code, words

    def _learned(
        self, properties: bytes, before: bytes, mark: bytes, unique: bytes, after: bytes
    ) -> tuple[bytes, int, tuple[bytes, ...]]:
        """The same for any properties, by a template that may be kept."""
        template = self._learn(properties, before, mark, after)
        if template.changed:
            properties = template.before + mark + unique + template.after
        return properties, template.tags_code, template.words

    def _learn(
        self, properties: bytes, before: bytes, mark: bytes, after: bytes
    ) -> PropertyTemplate:
        if len(properties) > PROPERTIES_BYTES_MAX:
            self._storable(properties)  # says what is wrong
        stored_prefix, stored_suffix = self._storable(before), self._storable(after)
        is_request = REPLY_TO in before or REPLY_TO in after
        if is_request and len(properties) + len(self._cluster) <= PROPERTIES_BYTES_MAX:
            stored_prefix = self._cluster + stored_prefix
        changed = (stored_prefix, stored_suffix) != (before, after)
        code, words = tag_and_keys(before + after)
        if words:
            check_keys(words, len(properties))
        template = PropertyTemplate(stored_prefix, stored_suffix, changed, code, words)
        # If each message has keys of its own, or another name to reply to, there is nothing to
        # keep.
        if not words and not is_request and len(properties) <= PRODUCE.property_template_bytes_max:
            if len(self._property_templates) >= PRODUCE.property_templates_max:
                self._property_templates.clear()
            self._property_templates[before, mark, after] = template
        return template


# The constructor that ``NamedTuple`` makes is a function of Python around this one.
_new = tuple.__new__
