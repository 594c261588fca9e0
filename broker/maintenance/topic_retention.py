"""Retention by topic, for topics with a shorter retention than the log.

All topics share one log, so this frees no space. It moves the minimum offset of each queue, like
Kafka's log start offset. The bytes are deleted when their segments expire
(:mod:`broker.maintenance.retention`).

The leader finds the new minimum offset of a queue by store times, and puts it into the log. So
replicas need neither a clock nor the records, and have the same minimum offsets.
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
"""The shortest retention: with a shorter one, messages could expire before a consumer can get
them."""

SLACK = 20
"""Pace: a queue is trimmed once its first message is too old by a twentieth of the retention. So a
queue with many messages is searched seldom, not at every check."""

_STORE_TIME = Struct(">q")

log = logging.getLogger(__name__)


class TopicRetention:
    """Checks regularly which queues can be trimmed; acts only on a leader."""

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
        """``known_by_all``: whether all members know the commands. ``reserved_ms`` gives the
        retention of the log, None if it is kept for ever. ``wall_clock`` gives ms since 1970."""
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
        """By topic and queue id: the first offset and the store time of its message in ms."""

    def command(self, topic: str, retention_ms: int) -> PutTopicRetention:
        """The command that sets the retention of a topic; 0 removes it.

        Raises :class:`~broker.errors.RefusedError` for an invalid retention, and
        :class:`~broker.errors.UnavailableError` while a member may not know the command.
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
                f"is kept for {reserved_ms} ms; raise fileReservedTime first"
            )
        if not self._known_by_all():
            raise UnavailableError(
                "perhaps not all members of the group support the retention of topics: a member "
                "is away, or has an earlier program"
            )
        return PutTopicRetention(topic, retention_ms, self._wall_clock())

    # --- the checks

    def start(self) -> None:
        """Begins the checks."""
        self._looks.start()

    def stop(self) -> None:
        """Ends the checks."""
        self._looks.stop()
        if self._look is not None:
            self._look.cancel()

    def _check(self) -> None:
        self._clock.now_ms()
        self.look()

    def look(self) -> None:
        """Checks now, unless a check is in progress."""
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
        """Trims queues one after the other, so that many queues do not block a node."""
        known, self._oldest = self._oldest, {}
        for topic, retention_ms in topics:
            for queue_id, queue in [*self._machine.queues(topic).items()]:
                await asyncio.sleep(0)
                try:
                    oldest = known.get((topic, queue_id), (-1, 0))
                    await self._trim_queue((topic, queue_id), queue, retention_ms, oldest)
                except (ProposeError, StoreError) as error:
                    log.debug("cannot read the age of %s/%d now: %s", topic, queue_id, error)

    async def _trim_queue(
        self,
        key: tuple[str, int],
        queue: ConsumeQueue,
        retention_ms: int,
        oldest: tuple[int, int],
    ) -> None:
        """``oldest``: the value of :attr:`_oldest` for the queue."""
        first, end = queue.first_offset, queue.end_offset
        if first == end:
            return
        if oldest[0] != first:
            oldest = first, await self._store_time(queue, key[1], first)
        self._oldest[key] = oldest
        begin_ms = self._clock.now_ms() - retention_ms
        if oldest[1] < begin_ms - retention_ms // SLACK:
            begin = await self._first_from(queue, key[1], begin_ms)
            # The disk was read in between; a change that was acknowledged meanwhile counts. A topic
            # that was deleted and created again loses nothing: its offsets continue.
            topic = self._batcher.topic(key[0])
            if topic is not None and topic.retention_ms == retention_ms:
                self._batcher.add_command(Trim(*key, begin))

    async def _first_from(self, queue: ConsumeQueue, queue_id: int, time_ms: int) -> int:
        """The first offset whose message was stored at ``time_ms`` or later."""
        low, high = queue.first_offset, queue.end_offset
        while low < high:
            middle = (low + high) // 2
            if await self._store_time(queue, queue_id, middle) < time_ms:
                low = middle + 1
            else:
                high = middle
        return low

    async def _store_time(self, queue: ConsumeQueue, queue_id: int, offset: int) -> int:
        """The store time of a message in ms. The reader compares the row with its record: a corrupt
        row must not trim messages. Raises :class:`~store.errors.StoreError`."""
        row = queue.read(offset, 1)
        if not row:
            raise StoreError(f"the queue no longer has offset {offset}")
        position, size, _code = QUEUE_ROW.unpack(row)
        read: asyncio.Future[Sequence[Bytes]] = self._loop.create_future()
        ranges = [row_range(queue, queue_id, offset, position, size)]
        self._reader.load(ranges, partial(settle, read))
        (record,) = await read
        (stored_ms,) = _STORE_TIME.unpack_from(record, STORE_TIMESTAMP_AT)
        return int(stored_ms)
