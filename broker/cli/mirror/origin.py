"""The origin of a mirrored message. Its copy has it, so the mirror knows from the target where to
continue."""

from __future__ import annotations

from dataclasses import dataclass

from broker.client.message import PROPERTY_DELAY, PROPERTY_DELIVER_AT, PROPERTY_UNIQUE_KEY
from broker.client.received_message import ReceivedMessage

PROPERTY_ORIGIN = "MIRROR_ORIGIN"
"""The property: broker name, queue id, queue offset and store time in ms, separated by spaces."""

NOT_COPIED = frozenset(
    (
        PROPERTY_UNIQUE_KEY,
        PROPERTY_DELAY,
        PROPERTY_DELIVER_AT,
        "REAL_QID",
        "REAL_TOPIC",
        "TIMER_DELAY_MS",
        "TIMER_DELAY_SEC",
        "TIMER_DEL_UNIQKEY",
        "TIMER_OUT_MS",
        "TRAN_MSG",
        "WAIT",
    )
)
"""Properties that are not copied: the target's broker would delay the message again, or hold it."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The queue and offset of a message in the source, and its store time there."""

    broker: str
    queue_id: int
    offset: int
    store_ms: int

    @staticmethod
    def of(message: ReceivedMessage) -> Origin:
        """The origin of a message of the source."""
        queue = message.queue
        return Origin(queue.broker, queue.queue_id, message.queue_offset, message.store_timestamp)

    @staticmethod
    def told_by(message: ReceivedMessage) -> Origin | None:
        """The origin in a copy; None for a message that is not a copy. Raises ``ValueError``."""
        told = message.properties.get(PROPERTY_ORIGIN)
        if told is None:
            return None
        broker, *numbers = told.split(" ")
        if len(numbers) != 3 or not all(each.isascii() and each.isdigit() for each in numbers):
            raise ValueError(f"{told!r:.80} is not an origin")
        queue_id, offset, store_ms = (int(each[:19]) for each in numbers)
        return Origin(broker, queue_id, offset, store_ms)

    def __str__(self) -> str:
        return f"{self.broker} {self.queue_id} {self.offset} {self.store_ms}"


def copied_properties(message: ReceivedMessage) -> dict[str, str]:
    """The properties of the copy."""
    kept = {key: value for key, value in message.properties.items() if key not in NOT_COPIED}
    return kept | {PROPERTY_ORIGIN: str(Origin.of(message))}
