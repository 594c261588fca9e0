"""Where a message waits that is not to be delivered at once, and until when.

A delay level sends it to ``SCHEDULE_TOPIC_XXXX``, one queue a level, in which messages become due
in the order in which they lie.
"""

from __future__ import annotations

from typing import NamedTuple

from broker.deferred.properties import (
    DELAY,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TIMER_NAMES,
    with_properties,
)
from broker.remoting.codes import ResponseCode
from broker.remoting.errors import RequestError
from broker.topics import RETRY_PREFIX
from store.deferred import LEVEL_MAX, SCHEDULE_TOPIC
from store.properties import find_property


class Waiting(NamedTuple):
    """Where a message is stored, and with which properties."""

    topic: str
    queue_id: int
    properties: bytes


def waiting_place(topic: str, queue_id: int, properties: bytes) -> Waiting:
    """Where a message to this queue waits; its own queue where it does not have to.

    Raises :class:`~broker.remoting.errors.RequestError`, code 13, for a time that cannot be.
    """
    level = delay_level(topic, properties)
    if level > 0:
        return at_level(topic, queue_id, properties, level)
    if any(find_property(properties, name) is not None for name in TIMER_NAMES):
        raise RequestError(
            ResponseCode.MESSAGE_ILLEGAL, "timed messages are not supported by this version"
        )
    return Waiting(topic, queue_id, properties)


def at_level(topic: str, queue_id: int, properties: bytes, level: int) -> Waiting:
    """The place of a message that waits for the time of a delay level, 1 to 18."""
    marks = {DELAY: b"%d" % level, REAL_TOPIC: topic.encode(), REAL_QUEUE_ID: b"%d" % queue_id}
    timers = dict.fromkeys(TIMER_NAMES)
    return Waiting(SCHEDULE_TOPIC, level - 1, with_properties(properties, marks | timers))


def delay_level(topic: str, properties: bytes) -> int:
    """What the property ``DELAY`` asks for; 0 for no delay.

    RocketMQ takes a level that there is not for the longest. Here that holds for what returns to
    a retry topic alone, where the level grows with each attempt; for others it is a mistake.
    """
    given = find_property(properties, DELAY)
    if given is None:
        return 0
    try:
        level = int(given)
    except ValueError:
        raise RequestError(
            ResponseCode.MESSAGE_ILLEGAL, f"the delay level {_text(given)} is not a number"
        ) from None
    if level > LEVEL_MAX:
        if topic.startswith(RETRY_PREFIX):
            return LEVEL_MAX
        raise RequestError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"there is no delay level {_text(given)}, the levels are 1 to {LEVEL_MAX}",
        )
    return max(level, 0)


def _text(value: bytes) -> str:
    return value[:20].decode(errors="replace")
