"""Messages for consumers like RocketMQ's Java client, and their outcomes.

The number of a message decides everything: its tag, whether a group wants it, and at which attempts
it cannot be consumed. Two of the tags have the same hash.
"""

from __future__ import annotations

from simulator.workload.history import Content
from simulator.workload.message_content import content_of

TAGS = ("Aa", "BB", "red", "")
WANTED_TAGS = ("Aa", "red")
RETRIES_MAX = 2
"""A message that fails this number of further times is a dead letter."""

RETRY_LEVEL = 1
"""The delay before the next attempt: 1 s."""


def tag_of(number: int) -> str:
    """The tag of the message of that number."""
    return TAGS[number % len(TAGS)]


def task_content(number: int, born_ms: int) -> Content:
    """The fields of the message of that number."""
    return content_of(number, born_ms)._replace(tags=tag_of(number))


def is_wanted(number: int) -> bool:
    """Whether a group that filters by tags gets the message."""
    return tag_of(number) in WANTED_TAGS


def fails(number: int, attempts: int) -> bool:
    """Whether the message cannot be consumed, after that number of failed attempts."""
    kind = number // len(TAGS) % 8
    return kind == 0 or (kind == 1 and attempts == 0)
