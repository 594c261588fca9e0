"""Retention by topic: how long consumers get the messages of a topic that wants it shorter.

All topics share one log, so this frees no disk. It moves the minimum offset of each queue, as
Kafka's log start offset. The bytes go when their segments expire
(:mod:`broker.maintenance.retention`).

The leader looks up by store times where a queue shall begin, and puts the offset into the log. So
replicas neither look at a clock nor at the records, and have the same minimum offsets.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from struct import Struct

from broker.delivery.message_reader import MessageReader, row_range
from broker.errors import RefusedError, UnavailableError
from broker.group_commit.batcher import Batcher
from broker.maintenance.retention import CHECK_SECONDS
from broker.maintenance.retention_clock import RetentionClock
from broker.state.commands import PutTopicRetention, Trim
from broker.state.state_machine import STORE_TIMESTAMP_AT, BrokerStateMachine
from dledger.errors import ProposeError
from dledger.periodic import Periodic
from dledger.settle import settle
from store.errors import StoreError
from store.index.consume_queue import ConsumeQueue
from store.io.filesystem import Bytes
from store.message.batch import QUEUE_ROW

RETENTION_MS_MIN = 1000
"""What is shorter would take messages away before a consumer can ask for them."""

SLACK = 20
"""Pace: a queue is trimmed once its first message is older by a twentieth of the retention. So a
queue with many messages is searched now and then, and not with every look."""

_STORE_TIME = Struct(">q")

log = logging.getLogger(__name__)


class TopicRetention:
    """Looks now and then which queues may begin later; does nothing but on a leader."""

    def __init__(
        self,
        *,
        machine: BrokerStateMachine,
        reader: MessageReader,
        batcher: Batcher,
        known_by_all: Callable[[], bool],
        reserved_ms: Callable[[], int | None],
        loop: asyncio.AbstractEventLoop,
        wall_clock: Callable[[], int],
    ) -> None:
        """``known_by_all``: whether all members know the commands. ``reserved_ms`` is how old the
        whole log may become, None if any age is right. ``wall_clock`` gives ms since 1970."""
        self._machine = machine
        self._reader = reader
        self._batcher = batcher
        self._known_by_all = known_by_all
        self._reserved_ms = reserved_ms
        self._loop = loop
        self._wall_clock = wall_clock
        self._clock = RetentionClock(wall_clock, loop.time)
        self._looks = Periodic(loop, CHECK_SECONDS, self._check)
        self._look: asyncio.Task[None] | None = None
        self._oldest: dict[tuple[str, int], tuple[int, int]] = {}
        """By topic and queue id: the first offset, and when its message was stored, ms."""

    def command(self, topic: str, retention_ms: int) -> PutTopicRetention:
        """The command that gives a topic another retention; 0 takes it away.

        Raises :class:`~broker.errors.RefusedError` for one that cannot be, and
        :class:`~broker.errors.UnavailableError` while a member may not know it.
        """
        reserved_ms = self._reserved_ms()
        if retention_ms and retention_ms < RETENTION_MS_MIN:
            raise RefusedError(
                f"a topic keeps its messages for {RETENTION_MS_MIN} ms or longer, "
                f"not for {retention_ms} ms"
            )
        if reserved_ms is not None and retention_ms > reserved_ms:
            raise RefusedError(
                f"{topic} cannot keep its messages for {retention_ms} ms: the log of all topics "
                f"goes after {reserved_ms} ms; raise fileReservedTime first"
            )
        if not self._known_by_all():
            raise UnavailableError(
                "not all members of the group are known to know the retention of topics: a member "
                "is away, or has an earlier program"
            )
        return PutTopicRetention(topic, retention_ms, self._wall_clock())

    # --- the look

    def start(self) -> None:
        """Begins to look."""
        self._looks.start()

    def stop(self) -> None:
        """Ends it."""
        self._looks.stop()
        if self._look is not None:
            self._look.cancel()

    def _check(self) -> None:
        self._clock.now_ms()
        self.look()

    def look(self) -> None:
        """Looks now, unless a look is under way."""
        busy = self._look is not None and not self._look.done()
        if not self._batcher.serving or busy or not self._known_by_all():
            return
        found = [
            (name, topic.retention_ms)
            for name, topic in self._machine.state.topics.items()
            if topic.retention_ms
        ]
        if found:
            self._look = self._loop.create_task(self._trim(found))

    async def _trim(self, topics: Sequence[tuple[str, int]]) -> None:
        """One queue after the other, so that a node with many is not kept from its work."""
        known, self._oldest = self._oldest, {}
        for topic, retention_ms in topics:
            for queue_id, queue in [*self._machine.queues(topic).items()]:
                await asyncio.sleep(0)
                try:
                    oldest = known.get((topic, queue_id), (-1, 0))
                    await self._trim_queue((topic, queue_id), queue, retention_ms, oldest)
                except (ProposeError, StoreError) as error:
                    log.debug("cannot look how old %s/%d is now: %s", topic, queue_id, error)

    async def _trim_queue(
        self,
        key: tuple[str, int],
        queue: ConsumeQueue,
        retention_ms: int,
        oldest: tuple[int, int],
    ) -> None:
        """``oldest``: what :attr:`_oldest` had of the queue."""
        first, end = queue.first_offset, queue.end_offset
        if first == end:
            return
        if oldest[0] != first:
            oldest = first, await self._store_time(queue, key[1], first)
        self._oldest[key] = oldest
        begin_ms = self._clock.now_ms() - retention_ms
        if oldest[1] < begin_ms - retention_ms // SLACK:
            begin = await self._first_from(queue, key[1], begin_ms)
            # Reads of the disk lie between; a change that is acknowledged meanwhile holds. A topic
            # that was deleted and made again loses nothing: its offsets go on where they ended.
            topic = self._batcher.topic(key[0])
            if topic is not None and topic.retention_ms == retention_ms:
                self._batcher.add_command(Trim(*key, begin))

    async def _first_from(self, queue: ConsumeQueue, queue_id: int, time_ms: int) -> int:
        """The first offset of the queue whose message was stored at ``time_ms`` or later."""
        low, high = queue.first_offset, queue.end_offset
        while low < high:
            middle = (low + high) // 2
            if await self._store_time(queue, queue_id, middle) < time_ms:
                low = middle + 1
            else:
                high = middle
        return low

    async def _store_time(self, queue: ConsumeQueue, queue_id: int, offset: int) -> int:
        """When the message was stored, ms. The reader compares the row with its record: a corrupt
        row must not give up messages. Raises :class:`~store.errors.StoreError`."""
        row = queue.read(offset, 1)
        if not row:
            raise StoreError(f"the queue has no offset {offset} any more")
        position, size, _code = QUEUE_ROW.unpack(row)
        read: asyncio.Future[Sequence[Bytes]] = self._loop.create_future()
        ranges = [row_range(queue, queue_id, offset, position, size)]
        self._reader.load(ranges, partial(settle, read))
        (record,) = await read
        (stored_ms,) = _STORE_TIME.unpack_from(record, STORE_TIMESTAMP_AT)
        return int(stored_ms)
