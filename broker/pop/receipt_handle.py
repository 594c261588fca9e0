"""Receipt handles: each names one delivery.

A handle is text in the form of RocketMQ's property ``POP_CK``, eight fields separated by spaces: an
offset at or below the message's, time of the receive, invisible time, the low 31 bits of the nonce,
0 (1: of the group's retry topic), broker name, queue id, offset. RocketMQ 4.x clients make it
themselves from the fields of an answer, where the fourth is a revive queue. Times are ms of the
store clock. The state has the last nonce and time of a message.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from store.field_checks import I64_MAX

HANDLE_SIZE_MAX = 512
"""Format: the most characters of a handle; the broker name is the longest part."""

_TAG_BITS = (1 << 31) - 1
_NUMBER = "([0-9]{1,19})"
_HANDLE = re.compile(
    f"[0-9]{{1,19}} {_NUMBER} {_NUMBER} ([0-9]{{1,10}}) ([01]) ([^ ]+) {_NUMBER} {_NUMBER}"
)


def tag_of(nonce: int) -> int:
    """The part of a nonce in a handle: its low 31 bits."""
    return nonce & _TAG_BITS


class ReceiptHandle(NamedTuple):
    tag: int
    delivered_ms: int
    invisible_ms: int
    broker: str
    queue_id: int
    offset: int
    is_retry: bool = False
    """Whether the message is of the group's retry topic."""

    @property
    def visible_ms(self) -> int:
        return self.delivered_ms + self.invisible_ms

    def __str__(self) -> str:
        return (
            f"{self.offset} {self.delivered_ms} {self.invisible_ms} {self.tag} "
            f"{self.is_retry:d} {self.broker} {self.queue_id} {self.offset}"
        )


def parse_handle(text: str, broker: str) -> ReceiptHandle | None:
    """The handle in ``text``; None if it is not a handle of that broker."""
    found = _HANDLE.fullmatch(text) if len(text) <= HANDLE_SIZE_MAX else None
    if found is None or found[5] != broker:
        return None
    numbers = int(found[1]), int(found[2]), int(found[6]), int(found[7])
    if max(numbers) > I64_MAX:
        return None
    delivered_ms, invisible_ms, queue_id, offset = numbers
    tag, is_retry = int(found[3]), found[4] == "1"
    return ReceiptHandle(tag, delivered_ms, invisible_ms, broker, queue_id, offset, is_retry)
