"""The fields of a workload's message beside its body: flag, tags, keys, properties, born time.

All of it follows from the message's number, so records in the log and delivered messages can be
compared with what was sent.
"""

from __future__ import annotations

from broker.client.message import Message
from simulator.workload.history import Content, Sent

TAGS = ("", "red", "green", "blue", "yellow")
ALIKE = 4
"""The length of a run with the same tags and properties: brokers read those only once."""

SIZES = ("", "small", "großer Kessel", "a=b,c|d")
"""Values of a property: empty, plain, with several bytes a character, and full of separators."""


def content_of(number: int, born_ms: int) -> Content:
    """The fields of the message of that number."""
    kind = number // ALIKE
    size = SIZES[kind % len(SIZES)]
    return Content(
        born_ms=born_ms,
        flag=number % 7,
        tags=TAGS[kind % len(TAGS)],
        keys=("", str(number), f"{number} again-{number}")[kind % 3],
        properties={"size": size} if size else {},
    )


def message_of(topic: str, sent: Sent, content: Content, *, delay_level: int = 0) -> Message:
    """The message to send, noted as what ``sent`` holds."""
    sent.content = content
    return Message(
        topic,
        sent.body,
        tags=content.tags,
        keys=content.keys,
        flag=content.flag,
        properties=content.properties,
        delay_level=delay_level,
    )
