"""Derives the rows of one record by code of the check's own, written from docs/format.md.

A leader derives them with ``store/message/record.py`` and ``store/message/scheduled_topics.py``.
The check shares none of that code, so it finds mistakes there.
:mod:`store.verify.log.property_columns` derives the same for many records at once.
"""

from __future__ import annotations

from crc32c import crc32c

from store.message.properties import KEYS, NAME_END, PAIR_END, TAGS, UNIQUE_KEY
from store.message.scheduled_topics import SCHEDULE_TOPIC, SCHEDULED_TOPICS, TIMER_OUT_MS

DELAY_SECONDS = (1, 5, 10, 30, *range(60, 660, 60), 1200, 1800, 3600, 7200)
"""The delay of each queue of ``SCHEDULE_TOPIC_XXXX``."""
_DIGITS_MAX = 18


def first_property(properties: bytes, name: bytes) -> bytes:
    """The value of the first property of that name; empty if there is none."""
    start = name + NAME_END
    for pair in properties.split(PAIR_END):
        if pair.startswith(start):
            return pair[len(start) :]
    return b""


def java_hash(text: bytes) -> int:
    """Java's hash of UTF-8 text: ``31 h + c`` over UTF-16 code units, in 32 bits, signed."""
    units = text.decode(errors="replace").encode("utf-16-be", "surrogatepass")
    code = 0
    for at in range(0, len(units), 2):
        code = (31 * code + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    return code - (1 << 32) if code >> 31 else code


def topic_crc(topic: bytes) -> int:
    """The CRC32C of ``topic#``, with which the hash of each key of the topic begins."""
    return crc32c(topic + b"#")


def key_hashes(topic: str, properties: bytes) -> list[int]:
    """The hash of the unique key, if there is one, and of each key."""
    unique = first_property(properties, UNIQUE_KEY)
    words = first_property(properties, KEYS).split()
    prefix = topic_crc(topic.encode())
    return [crc32c(word, prefix) for word in ([unique] if unique else []) + words]


def row_code(topic: str, queue_id: int, properties: bytes, stored_ms: int) -> int:
    """The last field of a queue row: the tags code, or the delivery time of a scheduled message
    in ms."""
    if topic in SCHEDULED_TOPICS:
        due_ms = _due_ms(topic, queue_id, properties, stored_ms)
        if due_ms is not None:
            return due_ms
    return java_hash(first_property(properties, TAGS))


def _due_ms(topic: str, queue_id: int, properties: bytes, stored_ms: int) -> int | None:
    """The delivery time of a scheduled message; ``None`` if no leader has put it there."""
    if topic == SCHEDULE_TOPIC:
        known = 0 <= queue_id < len(DELAY_SECONDS)
        return stored_ms + 1000 * DELAY_SECONDS[queue_id] if known else None
    digits = first_property(properties, TIMER_OUT_MS)
    return int(digits) if digits.isdigit() and len(digits) <= _DIGITS_MAX else None
