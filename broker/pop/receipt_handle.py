"""Receipt handles: each names one delivery.

A handle is text in the form of RocketMQ's property ``POP_CK``, eight fields with spaces between
them: nonce of the reception, time of the reception, invisible time, 0, 0, broker name, queue id,
offset. RocketMQ 4.x clients make it themselves from the fields of an answer. Times are ms of the
store clock. The state says which nonce and time are the last of a message.
"""

from __future__ import annotations

from typing import NamedTuple

from store.field_checks import I64_MAX

HANDLE_SIZE_MAX = 512
"""Format: characters of a handle; the broker name is the longest part."""

_FIELDS = 8
_DIGITS_MAX = 19


class ReceiptHandle(NamedTuple):
    nonce: int
    delivered_ms: int
    invisible_ms: int
    broker: str
    queue_id: int
    offset: int

    @property
    def visible_ms(self) -> int:
        return self.delivered_ms + self.invisible_ms

    def __str__(self) -> str:
        return (
            f"{self.nonce} {self.delivered_ms} {self.invisible_ms} 0 0 {self.broker} "
            f"{self.queue_id} {self.offset}"
        )


def parse_handle(text: str, broker: str) -> ReceiptHandle | None:
    """The handle in ``text``; None if it is none of that broker."""
    fields = text.split(" ") if len(text) <= HANDLE_SIZE_MAX else ()
    if len(fields) != _FIELDS or fields[3:6] != ["0", "0", broker]:
        return None
    numbers = [*fields[:3], *fields[6:]]
    if not all(each.isascii() and each.isdigit() and len(each) <= _DIGITS_MAX for each in numbers):
        return None
    nonce, delivered_ms, invisible_ms, queue_id, offset = map(int, numbers)
    if max(nonce, delivered_ms, invisible_ms, queue_id, offset) > I64_MAX:
        return None
    return ReceiptHandle(nonce, delivered_ms, invisible_ms, broker, queue_id, offset)
