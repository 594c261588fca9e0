"""Topics of scheduled messages, and the tags code in their ConsumeQueue rows.

In these rows the tags code is the delivery time in ms since 1970, not the hash of a tag
(RocketMQ's ``CommitLog.checkMessageAndReturnSize``). So a row alone says when its message is due:

- in ``SCHEDULE_TOPIC_XXXX``: the store time plus the delay of the level. Queue *n* is delay level
  *n + 1*.
- in ``rmq_sys_wheel_timer``: the property ``TIMER_OUT_MS``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from store.message.properties import find_property

if TYPE_CHECKING:
    from store.message.record import PendingMessage

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC = "rmq_sys_wheel_timer"
SCHEDULED_TOPICS = frozenset((SCHEDULE_TOPIC, TIMER_TOPIC))

TIMER_OUT_MS = b"TIMER_OUT_MS"

_SECOND, _MINUTE, _HOUR = 1_000, 60_000, 3_600_000
DELAYS_MS = (
    *(1 * _SECOND, 5 * _SECOND, 10 * _SECOND, 30 * _SECOND),
    *(minutes * _MINUTE for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30)),
    *(1 * _HOUR, 2 * _HOUR),
)
"""The delay of each queue of ``SCHEDULE_TOPIC_XXXX``: RocketMQ's default ``messageDelayLevel``."""

LEVEL_MAX = len(DELAYS_MS)

_MS_DIGITS_MAX = 18


def with_deliver_times(
    messages: Sequence[PendingMessage], queue_id: int, store_timestamp: int
) -> list[PendingMessage]:
    """The messages with the tags codes for a queue of ``SCHEDULE_TOPIC_XXXX``.

    ``store_timestamp`` is when they are stored, in ms.
    """
    deliver_ms = store_timestamp + DELAYS_MS[queue_id]
    return [message._replace(tags_code=deliver_ms) for message in messages]


def row_code(
    topic: str, queue_id: int, properties: bytes, store_timestamp: int, tags_code: int
) -> int:
    """The tags code in the row of a record in one of :data:`SCHEDULED_TOPICS`.

    ``tags_code`` is that of its tag. It is the answer if the record has no delivery time: then no
    leader has put it there.
    """
    if topic == SCHEDULE_TOPIC:
        return store_timestamp + DELAYS_MS[queue_id] if 0 <= queue_id < LEVEL_MAX else tags_code
    out_ms = find_property(properties, TIMER_OUT_MS) or b""
    if out_ms.isdigit() and len(out_ms) <= _MS_DIGITS_MAX:
        return int(out_ms)
    return tags_code
