"""The filter of a request: tags codes, or an SQL92 expression."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from broker.config.dynamic_settings import DynamicSettings
from broker.delivery.message_reader import GetMessageResult, GetMessageStatus, PullLimits
from broker.errors import UnsupportedFilterError
from broker.filter.sql92_parser import Selector, parse_selector
from broker.filter.subscription import SQL_TYPE, TAG_TYPE, ExpressionError, tag_codes
from store.errors import CorruptRecordError
from store.io.filesystem import Bytes
from store.message.properties import TAGS, decode_properties, find_property
from store.message.record import record_bounds
from store.quoting import quoted

SCAN_LIMITS = PullLimits(messages=256, bytes=1 << 20)
"""The most messages of a pull that filters by properties, because it must read them."""


_BODY_SIZE_AT = 84
"""The byte of the body size in a record with IPv4 hosts, which all records here have. The body
follows; then the topic with its size in one byte; then the properties with their size in two
bytes."""

_I32 = Struct(">i")


class MessageFilter(NamedTuple):
    """All messages pass if both are None."""

    codes: frozenset[int] | None = None
    selector: Selector | None = None
    size: int = 0
    """The characters of the expression."""
    tags: frozenset[str] | None = None
    """The tags as text, for clients that do not compare it. Tags may have the same code."""

    def has_tag(self, record: Bytes) -> bool:
        """Whether a record whose code is in :attr:`codes` also has one of :attr:`tags`."""
        return self.tags is None or has_tag(_properties(record), self.tags)


def has_tag(properties: bytes, tags: frozenset[str]) -> bool:
    """Whether a message with this property string has one of ``tags``."""
    tag = find_property(properties, TAGS)
    return tag is not None and tag.decode(errors="replace") in tags


def message_filter(settings: DynamicSettings, kind: str, expression: str) -> MessageFilter:
    """The filter of an expression. Raises :class:`~broker.filter.subscription.ExpressionError` for
    an invalid expression or an unknown kind, and :class:`~broker.errors.UnsupportedFilterError` for
    a kind that is switched off.
    """
    if kind == TAG_TYPE:
        return MessageFilter(codes=tag_codes(expression), size=len(expression))
    if kind != SQL_TYPE:
        raise ExpressionError(f"the expression type {quoted(kind)} is neither TAG nor SQL92")
    if not settings.property_filter:
        raise UnsupportedFilterError(
            f"The broker does not support consumer to filter message by {kind}"
        )
    return MessageFilter(selector=parse_selector(expression), size=len(expression))


def selected(
    selector: Selector,
    offset: int,
    found: GetMessageResult,
    parts: Sequence[Bytes],
    limits: PullLimits,
) -> tuple[GetMessageResult, list[Bytes]]:
    """The messages from ``offset`` on that match the selector, within ``limits``.

    Raises :class:`~store.errors.CorruptRecordError`.
    """
    records: list[Bytes] = []
    size = 0
    for part in parts:
        for start, end in record_bounds(part):
            if selector.matches(properties_of(part, start, end)):
                size += end - start
                if records and (size > limits.bytes or len(records) == limits.messages):
                    return _of(found, offset, len(records)), records
                records.append(memoryview(part)[start:end])
            offset += 1
    return _of(found, found.next_offset, len(records)), records


def properties_of(part: Bytes, start: int = 0, end: int | None = None) -> dict[str, str]:
    """The properties of the record at ``start``. The body, its largest part, is not read."""
    return decode_properties(_properties(part, start, end))


def _properties(part: Bytes, start: int = 0, end: int | None = None) -> bytes:
    end = len(part) if end is None else end
    (body_size,) = _I32.unpack_from(part, start + _BODY_SIZE_AT)
    topic_at = start + _BODY_SIZE_AT + _I32.size + body_size
    if body_size < 0 or topic_at >= end:
        raise CorruptRecordError(f"a body of {body_size} bytes leaves the record")
    return bytes(part[topic_at + 1 + part[topic_at] + 2 : end])


def _of(found: GetMessageResult, next_offset: int, messages: int) -> GetMessageResult:
    status = GetMessageStatus.FOUND if messages else GetMessageStatus.NO_MATCHED_MESSAGE
    return found._replace(status=status, next_offset=next_offset, messages=messages)
