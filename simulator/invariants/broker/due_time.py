"""When a scheduled message is due, computed from its client's request.

RocketMQ's default ``messageDelayLevel``: a level's delay counts from the store time of the message.
A timed message has its delivery time (``TIMER_OUT_MS``). Its row in the ConsumeQueue must say the
same.
"""

from __future__ import annotations

from simulator.engine.violation import Violation
from store.message.record import MessageRecord

SECONDS = {"s": 1, "m": 60, "h": 3600}
LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
DELAYS_MS = [1000 * int(delay[:-1]) * SECONDS[delay[-1]] for delay in LEVELS.split()]


def due_ms(record: MessageRecord, level: int, row: int) -> int:
    """``level`` is the requested one, 0 for a time; ``row``: the time in the row.

    Raises :class:`Violation` if the row says something else.
    """
    if level:
        due = record.store_timestamp + DELAYS_MS[level - 1]
    else:
        due = int(record.property_map["TIMER_OUT_MS"])
    if row != due:
        raise Violation(
            f"a message that is due at {due} waits in {record.topic}/{record.queue_id} "
            f"as if it were due at {row}"
        )
    return due
