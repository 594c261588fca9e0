"""How many of the messages that wait belong to one topic: their records say to which.

Scheduled messages, retries and half messages of all topics wait in the same queues. So this reads
their records, as many as a limit allows, and tells how many more there are.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Container, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from broker.admin.turns import Turn
from broker.context import BrokerContext
from broker.delivery.message_reader import LogRange, row_range, rows
from broker.limits import ADMIN
from broker.scheduled.delay_level_dispatcher import undelivered_of_levels
from broker.scheduled.system_properties import REAL_TOPIC
from broker.scheduled.timer_dispatcher import undelivered_of_wheel
from broker.topics_and_groups import HALF_TOPIC
from dledger.settle import settle
from store.errors import StoreError
from store.index.consume_queue import ConsumeQueue
from store.io.filesystem import Bytes
from store.message.properties import find_property
from store.message.record import decode_record

_ROWS = 256
"""Of a queue, read at a time."""

_AT_ONCE = 32
"""Records that are read at a time."""

log = logging.getLogger(__name__)


class WaitingOfTopic(NamedTuple):
    """What was found."""

    messages: int
    """They wait, and are of the topic."""
    unread: int
    """They wait, and nobody has looked of which topic they are."""


async def waiting_of_topic(context: BrokerContext, topic: str, unread: int) -> WaitingOfTopic:
    """``unread``: how many wait of all topics."""
    name, turn = topic.encode(), Turn()
    found = size = 0
    left = ADMIN.waiting_read_max
    try:
        for waiting in _records(context):
            await turn.took(_ROWS)
            for start in range(0, min(len(waiting), left), _AT_ONCE):
                some = waiting[start : min(start + _AT_ONCE, left)]
                size += sum(each.size for each in some)
                if size > ADMIN.waiting_read_bytes_max:
                    return WaitingOfTopic(found, max(unread, 0))
                for part in await _load(context, some):
                    properties = bytes(decode_record(part).properties)
                    found += find_property(properties, REAL_TOPIC) == name
                unread -= len(some)
            left -= len(waiting)
            if left <= 0:
                break
    except StoreError as error:  # some are damaged, or expired just now
        log.debug("cannot look of which topic a waiting message is: %s", error)
    return WaitingOfTopic(found, max(unread, 0))


async def _load(context: BrokerContext, ranges: Sequence[LogRange]) -> Sequence[Bytes]:
    loaded: asyncio.Future[Sequence[Bytes]] = context.loop.create_future()
    context.reader.load(ranges, partial(settle, loaded))
    await asyncio.sleep(0)  # others have their turn, also while all is in memory
    return await loaded


def _records(context: BrokerContext) -> Iterator[Sequence[LogRange]]:
    """What waits, of up to :data:`_ROWS` rows at a time. None of them may wait: very many that are
    due in the present slot of the wheel are delivered."""
    machine = context.machine
    for level, queue, offset in undelivered_of_levels(machine):
        yield from _rows(queue, level - 1, offset)
    recalled = frozenset(machine.state.recalled)
    for queue_id, queue, offset, mark in undelivered_of_wheel(machine):
        yield from _rows(queue, queue_id, offset, mark, recalled)
    half = machine.queue(HALF_TOPIC, 0)
    if half is not None:
        offsets = [*machine.state.transactions]
        for start in range(0, len(offsets), _AT_ONCE):
            yield [
                row_range(half, 0, offset, position, size)
                for offset in offsets[start : start + _AT_ONCE]
                for position, size, _ in rows(half.read(offset, 1))
            ]


def _rows(
    queue: ConsumeQueue,
    queue_id: int,
    offset: int,
    mark: tuple[int, int] = (-1, -1),
    recalled: Container[tuple[int, int]] = (),
) -> Iterator[Sequence[LogRange]]:
    """The rows from ``offset`` on. The third field of a row is when its message is due: those up to
    ``mark``, a time and an offset, are delivered; ``recalled`` ones will never be."""
    while data := queue.read(offset, _ROWS):
        found = [*enumerate(rows(data), offset)]
        yield [
            row_range(queue, queue_id, at, position, size)
            for at, (position, size, due_ms) in found
            if (due_ms, at) > mark and (due_ms, at) not in recalled
        ]
        offset += len(found)
