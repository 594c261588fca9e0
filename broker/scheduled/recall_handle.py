"""Recall handles: each names one timed message, which its producer can recall with it.

A handle is text in the form of RocketMQ 5.3, because its clients decode it: URL-safe Base64 of
``v1``, topic, broker name, delivery time in ms, and message id, separated by spaces. The position
of the message in the log follows, by which it is found.
"""

from __future__ import annotations

from base64 import b64decode, urlsafe_b64encode
from typing import NamedTuple

from broker.errors import RecallHandleError
from store.field_checks import I64_MAX
from store.message.properties import UNIQUE_KEY, find_property
from store.text_numbers import whole_number

HANDLE_SIZE_MAX = 8192
"""Format: the most characters of a handle; the message id is the longest part."""

_VERSION = "v1"


class RecallHandle(NamedTuple):
    """A handle without the position, which is known once the message is stored."""

    topic: str
    broker: str
    deliver_ms: int
    message_id: str

    def at(self, position: int) -> str:
        """The text of the handle, for a message at this position."""
        parts = (_VERSION, self.topic, self.broker, self.deliver_ms, self.message_id, position)
        return urlsafe_b64encode(" ".join(map(str, parts)).encode()).decode()


def handle_for(topic: str, broker: str, deliver_ms: int, properties: bytes) -> RecallHandle | None:
    """The handle of a message with these properties; None without a unique key, or if the handle
    would be too long."""
    key = (find_property(properties, UNIQUE_KEY) or b"").decode(errors="replace")
    if not key:
        return None
    handle = RecallHandle(topic, broker, deliver_ms, key)
    return handle if len(handle.at(I64_MAX)) <= HANDLE_SIZE_MAX else None


def parse_recall_handle(text: str, topic: str, broker: str) -> tuple[RecallHandle, int]:
    """The handle in ``text``, and the position of its message.

    Raises :class:`~broker.errors.RecallHandleError` if it is not a handle for that topic and
    broker.
    """
    try:
        if len(text) > HANDLE_SIZE_MAX:
            raise ValueError
        version, of, at, deliver_ms, *message_id, position = (
            b64decode(text, altchars=b"-_", validate=True).decode().split(" ")
        )
        handle = RecallHandle(of, at, whole_number(deliver_ms), " ".join(message_id))
        found = whole_number(position)
        if version != _VERSION or not handle.message_id or not 0 <= found <= I64_MAX:
            raise ValueError
    except ValueError:
        raise RecallHandleError("recall handle is invalid") from None
    if handle.topic != topic:
        raise RecallHandleError(f"the recall handle is of the topic {handle.topic}, not {topic}")
    if handle.broker != broker:
        raise RecallHandleError(
            f"the recall handle is of the broker {handle.broker}, and this is {broker}"
        )
    return handle, found
