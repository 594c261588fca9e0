"""Waiting messages: open transactions, scheduled messages, and deliveries of POP.

All are in the replicated state, so any replica can answer. Of long lists the first items are
listed, and the rest is counted.
"""

from __future__ import annotations

from itertools import islice
from operator import itemgetter
from typing import Any

from broker.admin.turns import Turn
from broker.context import BrokerContext
from broker.delivery.message_reader import rows
from broker.limits import ADMIN
from broker.scheduled.delay_level_dispatcher import undelivered_of_levels
from broker.scheduled.timer_dispatcher import undelivered_of_wheel
from broker.scheduled.timer_wheel import slot_of
from broker.state.recalled_messages import TimedKey
from store.index.consume_queue import ConsumeQueue
from store.message.scheduled_topics import DELAYS_MS

_ROWS = 2048
"""Of a queue, read at a time."""


async def waiting_messages(context: BrokerContext) -> dict[str, Any]:
    """::

    {"now_ms": 0,
     "transactions": {"count": 1, "listed": [{"offset", "position", "group", "stored_ms",
                      "checks", "checked_ms"}, ...]},
     "scheduled": {"levels": [{"level", "delay_ms", "messages", "next_ms"}, ...],
                   "timed": 3, "timed_next_ms"},
     "delayed": the same, by its earlier name,
     "popped": {"count": 2, "listed": [{"group", "topic", "queue_id", "received", "waiting",
                "next_ms"}, ...]}}

    Times are ms since 1970. ``next_ms`` is when the next one is due, or null. ``timed`` messages
    have a time of their own; ``timed_next_ms`` is null also where too many wait to tell. Of POP,
    ``received`` messages are not acknowledged; those ``waiting`` have their turn after others of
    their message group.
    """
    state = context.machine.state
    transactions = [
        {
            "offset": offset,
            "position": each.position,
            "group": each.group,
            "stored_ms": each.stored_ms,
            "checks": each.checks,
            "checked_ms": each.checked_ms,
        }
        for offset, each in islice(state.transactions.items(), ADMIN.waiting_listed_max)
    ]
    scheduled = {
        "levels": _levels(context),
        "timed": state.timed_waiting,
        "timed_next_ms": await _timed_next_ms(context),
    }
    return {
        "now_ms": context.wall_clock(),
        "transactions": {"count": len(state.transactions), "listed": transactions},
        "scheduled": scheduled,
        "delayed": scheduled,
        "popped": await _popped(context),
    }


def undelivered_count(context: BrokerContext) -> int:
    """The number of messages that no consumer can see yet: scheduled messages and half messages."""
    delayed = sum(
        queue.end_offset - offset for _, queue, offset in undelivered_of_levels(context.machine)
    )
    state = context.machine.state
    return delayed + state.timed_waiting + len(state.transactions)


def _levels(context: BrokerContext) -> list[dict[str, Any]]:
    """The delay levels with waiting messages."""
    found = []
    for level, queue, offset in undelivered_of_levels(context.machine):
        due = [deliver_ms for _, _, deliver_ms in rows(queue.read(offset, 1))]
        found.append(
            {
                "level": level,
                "delay_ms": DELAYS_MS[level - 1],
                "messages": queue.end_offset - offset,
                "next_ms": due[0] if due else None,
            }
        )
    return found


async def _timed_next_ms(context: BrokerContext) -> int | None:
    """When the next timed message is due, in ms since 1970."""
    state, turn = context.machine.state, Turn()
    slots: list[tuple[int, ConsumeQueue, int, TimedKey]] = []
    for _, queue, offset, progress in undelivered_of_wheel(context.machine):
        first = rows(queue.read(offset, 1))
        slots += [(slot_of(due_ms), queue, offset, progress) for _, _, due_ms in first]
        await turn.took((queue.end_offset - queue.first_offset).bit_length())
    left = ADMIN.waiting_rows_max
    for _, queue, first_offset, progress in sorted(slots, key=itemgetter(0)):
        offset, due = first_offset, list[int]()
        while data := queue.read(offset, min(_ROWS, left)):
            timed = [(due_ms, at) for at, (_, _, due_ms) in enumerate(rows(data), offset)]
            due += [key[0] for key in timed if key > progress and key not in state.recalled]
            offset += len(timed)
            left -= len(timed)
            await turn.took(len(timed))
        if offset < queue.end_offset:
            break
        if due:
            return min(due)
    return None


async def _popped(context: BrokerContext) -> dict[str, Any]:
    pop = context.machine.state.pop
    listed: list[dict[str, Any]] = []
    turn = Turn()
    for (group, topic, queue_id), queue in list(pop.queues.items()):
        if len(listed) >= ADMIN.waiting_listed_max:
            break
        received = [each.visible_ms for each in queue.deliveries.values() if each.attempt]
        if queue.deliveries:
            listed.append(
                {
                    "group": group,
                    "topic": topic,
                    "queue_id": queue_id,
                    "received": len(received),
                    "waiting": len(queue.deliveries) - len(received),
                    "next_ms": min(received, default=None),
                }
            )
        await turn.took(len(queue.deliveries))
    return {"count": pop.delivery_count, "listed": listed}
