"""Counts the waiting messages of one topic, by their records.

Scheduled messages, retries and half messages of all topics wait in the same queues. So their
records are read, up to a limit; the rest is counted.
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
"""Rows of a queue that are read at a time."""

_AT_ONCE = 32
"""Records that are read at a time."""

log = logging.getLogger(__name__)


class WaitingOfTopic(NamedTuple):
    """The counts."""

    messages: int
    """Waiting messages of the topic."""
    unread: int
    """Waiting messages whose records were not read, so their topic is unknown."""


async def waiting_of_topic(context: BrokerContext, topic: str, unread: int) -> WaitingOfTopic:
    """Counts the waiting messages of ``topic``; ``unread`` is the number of waiting messages of all
    topics."""
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
    except StoreError as error:  # some records are damaged, or have just expired
        log.debug("cannot read the topic of a waiting message: %s", error)
    return WaitingOfTopic(found, max(unread, 0))


async def _load(context: BrokerContext, ranges: Sequence[LogRange]) -> Sequence[Bytes]:
    loaded: asyncio.Future[Sequence[Bytes]] = context.loop.create_future()
    context.reader.load(ranges, partial(settle, loaded))
    await asyncio.sleep(0)  # other tasks get a turn, even if all is in memory
    return await loaded


def _records(context: BrokerContext) -> Iterator[Sequence[LogRange]]:
    """The ranges of waiting messages, from up to :data:`_ROWS` rows at a time. A list may be empty,
    because many messages of the present slot of the wheel may be delivered."""
    machine = context.machine
    for level, queue, offset in undelivered_of_levels(machine):
        yield from _rows(queue, level - 1, offset)
    recalled = frozenset(machine.state.recalled)
    for queue_id, queue, offset, progress in undelivered_of_wheel(machine):
        yield from _rows(queue, queue_id, offset, progress, recalled)
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
    progress: tuple[int, int] = (-1, -1),
    recalled: Container[tuple[int, int]] = (),
) -> Iterator[Sequence[LogRange]]:
    """The ranges of the rows from ``offset`` on. The third field of a row is the time at which the
    message is due. Messages up to ``progress`` (time, offset) are delivered, and ``recalled``
    messages are skipped."""
    while data := queue.read(offset, _ROWS):
        found = [*enumerate(rows(data), offset)]
        yield [
            row_range(queue, queue_id, at, position, size)
            for at, (position, size, due_ms) in found
            if (due_ms, at) > progress and (due_ms, at) not in recalled
        ]
        offset += len(found)
