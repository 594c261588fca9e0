"""The queue in which a scheduled message waits, and its delivery time.

With a delay level it goes to ``SCHEDULE_TOPIC_XXXX``. That topic has a queue for each level, in
which messages become due in order. With a delivery time it goes to the timer wheel
(:mod:`broker.scheduled.timer_wheel`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from broker.errors import DeliveryTimeError, IllegalMessageError
from broker.scheduled.republisher import real_queue_properties
from broker.scheduled.system_properties import (
    DELAY,
    TIMER_DEL_UNIQUE_KEY,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_NAMES,
    with_properties,
)
from broker.scheduled.timer_wheel import DELAY_MS_MAX, queue_of, slot_of
from broker.topics_and_groups import RETRY_PREFIX
from store.message.properties import find_property
from store.message.scheduled_topics import LEVEL_MAX, SCHEDULE_TOPIC, TIMER_OUT_MS, TIMER_TOPIC
from store.text_numbers import whole_number


class Placement(NamedTuple):
    """The topic and queue in which a message is stored, and its properties.

    ``deliver_ms``: the delivery time of a timed message.
    """

    topic: str
    queue_id: int
    properties: bytes
    deliver_ms: int | None = None


def scheduled_placement(
    topic: str,
    queue_id: int,
    properties: bytes,
    now_ms: int,
    may_have_waited: Callable[[bytes], bool],
) -> Placement:
    """The placement of a message for this queue: the queue itself if the message need not wait.

    A message that is due at ``now_ms`` or before does not wait, unless it is perhaps a retry. The
    first try ``may_have_waited``, by the properties. Then the retry is put where the first try is
    recognised, for a millisecond. Raises :class:`~broker.errors.IllegalMessageError` for an invalid
    level or time.
    """
    level = delay_level(topic, properties)
    if level > 0:
        return delay_level_placement(topic, queue_id, properties, level)
    deliver_ms = deliver_time(properties, now_ms)
    if deliver_ms <= now_ms:
        if not (deliver_ms and may_have_waited(properties)):
            return Placement(topic, queue_id, properties)
        deliver_ms = now_ms + 1
    added = {TIMER_OUT_MS: b"%d" % deliver_ms} | real_queue_properties(topic, queue_id)
    slot = queue_of(slot_of(deliver_ms))
    return Placement(TIMER_TOPIC, slot, with_properties(properties, added), deliver_ms)


def delay_level_placement(topic: str, queue_id: int, properties: bytes, level: int) -> Placement:
    """The placement of a message with a delay level from 1 to 18."""
    added = {DELAY: b"%d" % level} | real_queue_properties(topic, queue_id)
    timers = dict.fromkeys(TIMER_NAMES)
    return Placement(SCHEDULE_TOPIC, level - 1, with_properties(properties, added | timers))


def delay_level(topic: str, properties: bytes) -> int:
    """The delay level in the property ``DELAY``; 0 for none.

    RocketMQ takes an unknown level for the longest. Here only messages for a retry topic may have
    an unknown level, because it grows with each attempt; other messages are refused.
    """
    given = find_property(properties, DELAY)
    if given is None:
        return 0
    try:
        level = whole_number(given)
    except ValueError:
        raise DeliveryTimeError(f"the delay level {_text(given)} is not a number") from None
    if level > LEVEL_MAX:
        if topic.startswith(RETRY_PREFIX):
            return LEVEL_MAX
        raise DeliveryTimeError(
            f"there is no delay level {_text(given)}, the levels are 1 to {LEVEL_MAX}"
        )
    return max(level, 0)


def deliver_time(properties: bytes, now_ms: int) -> int:
    """The delivery time of a message in ms; 0 if it has none.

    If there are several properties, the delay in seconds counts first, then that in milliseconds,
    as in RocketMQ. A message that has waited before does not wait again.
    """
    if find_property(properties, TIMER_OUT_MS) is not None:
        return 0
    if find_property(properties, TIMER_DEL_UNIQUE_KEY) is not None:
        raise IllegalMessageError("this broker does not support the recall by TIMER_DEL_UNIQKEY")
    for name, unit_ms, begin_ms in (
        (TIMER_DELAY_SEC, 1000, now_ms),
        (TIMER_DELAY_MS, 1, now_ms),
        (TIMER_DELIVER_MS, 1, 0),
    ):
        given = find_property(properties, name)
        if given is None:
            continue
        try:
            deliver_ms = begin_ms + unit_ms * whole_number(given)
        except ValueError:
            raise DeliveryTimeError(f"{name.decode()} {_text(given)} is not a number") from None
        if deliver_ms - now_ms > DELAY_MS_MAX:
            raise DeliveryTimeError(
                f"timer message illegal, {name.decode()} {_text(given)} is more than the max delay "
                f"of {DELAY_MS_MAX} ms away"
            )
        return deliver_ms
    return 0


def _text(value: bytes) -> str:
    return value[:20].decode(errors="replace")
