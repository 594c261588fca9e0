"""The open transactions, which every replica knows from the log.

Storing a half message opens one, in the entry that holds the message. The offset of the half
message in its queue, and its position in the log, identify it. No other message ever has that
position, so a late or repeated request cannot mean another transaction.
"""

from __future__ import annotations

from typing import NamedTuple

from store.message.properties import find_property
from store.message.record import MessageRecord

PRODUCER_GROUP = b"PGROUP"
CHECK_IMMUNITY = b"CHECK_IMMUNITY_TIME_IN_SECONDS"

_SECONDS_DIGITS_MAX = 7
"""Format: the most digits of a number of seconds."""


class OpenTransaction(NamedTuple):
    """The position of the half message, its producer group, and its check-backs; times in ms."""

    position: int
    group: str
    stored_ms: int
    immunity_ms: int = -1
    """How long no check-back asks the producer; below 0: as the broker's settings say."""
    checks: int = 0
    checked_ms: int = 0


def open_transaction_of(record: MessageRecord) -> OpenTransaction:
    """The transaction that this half message opens."""
    group = (find_property(record.properties, PRODUCER_GROUP) or b"").decode(errors="replace")
    seconds = find_property(record.properties, CHECK_IMMUNITY) or b""
    immune = seconds.isdigit() and len(seconds) <= _SECONDS_DIGITS_MAX
    return OpenTransaction(
        record.position,
        group,
        record.store_timestamp,
        1000 * int(seconds) if immune else -1,
    )
