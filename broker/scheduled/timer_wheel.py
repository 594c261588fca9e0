"""The timer wheel: the queues of ``rmq_sys_wheel_timer``, one for each ten minutes.

Time is cut into *slots* of ten minutes since 1970. A message due within a slot waits in queue *slot
mod 440*. It is stored like any message, and sorted only once its slot is present. Messages wait for
at most three days, and the 440 slots cover 80 minutes more. So a queue has all messages of one slot
before those of the next slot in that queue, and the first message of a slot can be found by search.
Rejected: RocketMQ's wheel of seconds. Its slots link records in a separate log; replicas have
queues anyway, which are checked and recovered.
"""

from __future__ import annotations

from broker.delivery.message_reader import rows
from store.index.consume_queue import ConsumeQueue

SLOT_MS = 600_000
SLOTS = 440
DELAY_MS_MAX = 3 * 86_400_000
"""Format: RocketMQ's ``timerMaxDelaySec``, in ms."""


def slot_of(deliver_ms: int) -> int:
    """The slot of a time."""
    return deliver_ms // SLOT_MS


def queue_of(slot: int) -> int:
    """The queue of a slot."""
    return slot % SLOTS


def first_of_slot(queue: ConsumeQueue, slot: int) -> int:
    """The offset of the first message that is due in ``slot`` or later; the end of the queue if
    there is none."""
    low, high = queue.first_offset, queue.end_offset
    while low < high:
        middle = (low + high) // 2
        ((_position, _size, deliver_ms),) = rows(queue.read(middle, 1))
        if slot_of(deliver_ms) >= slot:
            high = middle
        else:
            low = middle + 1
    return low
