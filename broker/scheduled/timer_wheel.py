"""The wheel on which timed messages wait: queues of ``rmq_sys_wheel_timer``, one for ten minutes.

Time is cut into *slots* of ten minutes since 1970. A message due within a slot waits in queue *slot
mod 440*. It is stored like any message, and put in order only when its slot has come. Messages wait
for three days at most, and the 440 slots cover 80 minutes more. So a queue holds all messages of
one slot before the first of the slot that comes round next, and the begin of a slot can be searched
for. Rejected: RocketMQ's wheel of seconds. Its slots link records in a log of its own; every
replica has queues anyway, checked and recovered.
"""

from __future__ import annotations

from broker.delivery.corrupt_rows import CorruptRowError, columns
from broker.delivery.message_reader import rows
from store.index.consume_queue import ConsumeQueue
from store.io.filesystem import Bytes

SLOT_MS = 600_000
SLOTS = 440
DELAY_MS_MAX = 3 * 86_400_000
"""Format: RocketMQ's ``timerMaxDelaySec``, in ms."""


def slot_of(deliver_ms: int) -> int:
    """The slot in which a time lies."""
    return deliver_ms // SLOT_MS


def queue_of(slot: int) -> int:
    """The queue in which the messages of a slot wait."""
    return slot % SLOTS


def first_of_slot(queue: ConsumeQueue, number: int, slot: int) -> int:
    """The offset of the first message in queue ``number`` that is due in ``slot`` or later; the end
    where there is none. Raises :class:`~broker.delivery.corrupt_rows.CorruptRowError` as it comes
    upon a row of a time for which nothing waits there.
    """
    low, high = queue.first_offset, queue.end_offset
    while low < high:
        middle = (low + high) // 2
        ((_position, _size, deliver_ms),) = rows(queue.read(middle, 1))
        if deliver_ms <= 0 or queue_of(slot_of(deliver_ms)) != number:
            raise CorruptRowError(queue, middle)
        if slot_of(deliver_ms) >= slot:
            high = middle
        else:
            low = middle + 1
    return low


def first_corrupt_time(data: Bytes, number: int, last_ms: int) -> int | None:
    """Which of these rows of queue ``number`` says a time for which nothing waits there: one in a
    slot of another queue, or behind ``last_ms``."""
    times = columns(data)["code"].astype("i8")
    wrong = (times <= 0) | (times > last_ms) | (times // SLOT_MS % SLOTS != number)
    return int(wrong.argmax()) if wrong.any() else None
