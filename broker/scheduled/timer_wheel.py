"""The wheel on which timed messages wait: queues of ``rmq_sys_wheel_timer``, one for ten minutes.

Time is cut into *slots* of ten minutes since 1970. A message due within a slot waits in queue *slot
mod 440*. It is stored like any message, and put in order only when its slot has come. Messages wait
for three days at most, and the 440 slots cover 80 minutes more. So a queue holds all messages of
one slot before the first of the slot that comes round next, and the begin of a slot can be searched
for. Rejected: RocketMQ's wheel of seconds. Its slots link records in a log of its own; every
replica has queues anyway, checked and recovered.
"""

from __future__ import annotations

from broker.delivery.message_reader import rows
from store.index.consume_queue import ConsumeQueue

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


def first_of_slot(queue: ConsumeQueue, slot: int) -> int:
    """The offset of the first message that is due in ``slot`` or later; the end where there is
    none."""
    low, high = queue.first_offset, queue.end_offset
    while low < high:
        middle = (low + high) // 2
        ((_position, _size, deliver_ms),) = rows(queue.read(middle, 1))
        if slot_of(deliver_ms) >= slot:
            high = middle
        else:
            low = middle + 1
    return low
