"""Reads a topic without a group: no offset is committed, and no broker keeps a trace."""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from broker.client.consumer.consumer_requests import (
    PULL_CODES,
    PULL_SUBSCRIPTION,
    PULL_SUSPEND,
    PullAnswer,
)
from broker.client.consumer.fetcher import tag_filter
from broker.client.consumer.message_selector import Sql, subscription
from broker.client.message import MessageQueue
from broker.client.received_message import PulledBatch, ReceivedMessage
from broker.cluster_admin.admin_client import (
    AdminClient,
    NoAnswerError,
    NoLeaderError,
    RefusedError,
    UnreachableError,
    when_led,
)
from broker.cluster_admin.offset_resets import offset_at
from broker.cluster_admin.topics import QueueView, view_queues
from broker.command_error import CommandError, UsageError
from broker.filter.subscription import ALL
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from store.errors import CorruptRecordError

PULL_MESSAGES = 32
HOLD_MS = 5_000
AHEAD_MAX = 1_000
"""Pace: messages that wait to be printed while a topic is followed."""


@dataclass(frozen=True, slots=True)
class Window:
    """The messages to read. Each queue begins at ``offset``, or ``last`` messages before its end,
    or at ``start``: earliest, latest or a time in ms."""

    start: str | int = "earliest"
    offset: int | None = None
    last: int | None = None
    until_ms: int | None = None
    """The time of the newest message; None: the present end of the queues."""
    queue: int | None = None
    wanted: str | Sql = ALL
    broker: str = ""
    """Only this broker group, unless empty."""
    bytes_max: int | None = None
    """The most bytes of the ``last`` messages, but at least one message."""


@dataclass(frozen=True, slots=True)
class _Range:
    queue: MessageQueue
    begin: int
    end: int


class Peek:
    """Reads one topic."""

    def __init__(self, admin: AdminClient, topic: str, window: Window) -> None:
        self._admin = admin
        self._topic = topic
        self._window = window
        self._subscription = subscription(topic, window.wanted, 0)
        self._tags = tag_filter(self._subscription)
        self._masters: dict[str, str] = {}

    async def messages(self) -> AsyncGenerator[ReceivedMessage]:
        """The present messages of all queues, in the order of store time."""
        last = self._window.last
        if last is None:
            async for message in self._merged(await self._ranges()):
                yield message
            return
        kept: deque[ReceivedMessage] = deque()
        size, most = 0, self._window.bytes_max
        async for message in self._merged(await self._ranges()):
            kept.append(message)
            size += len(message.raw_body)
            while len(kept) > last or (most is not None and size > most and len(kept) > 1):
                size -= len(kept.popleft().raw_body)
        for message in kept:
            yield message

    async def follow(self) -> AsyncGenerator[ReceivedMessage]:
        """Present and new messages, each queue in order, without end."""
        waiting: asyncio.Queue[ReceivedMessage | CommandError] = asyncio.Queue(AHEAD_MAX)

        async def feed(range_: _Range) -> None:
            try:
                async for message in self.read(range_.queue, range_.begin, None):
                    await waiting.put(message)
            except CommandError as error:
                await waiting.put(error)

        tasks = [asyncio.create_task(feed(each)) for each in await self._ranges()]
        try:
            while True:
                came = await waiting.get()
                if isinstance(came, CommandError):
                    raise came
                yield came
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _ranges(self) -> Sequence[_Range]:
        queues = await when_led(lambda: view_queues(self._admin, self._topic))
        if self._window.queue is not None:
            queues = [each for each in queues if each.queue_id == self._window.queue]
            if not queues:
                raise UsageError(f"{self._topic} has no queue {self._window.queue}")
        if self._window.broker:
            queues = [each for each in queues if each.broker == self._window.broker]
        self._masters = dict((await self._admin.route(self._topic)).masters)
        return await asyncio.gather(*map(self._range, queues))

    async def _range(self, queue: QueueView) -> _Range:
        window, address = self._window, self._masters[queue.broker]
        end = queue.max_offset
        if window.until_ms is not None:
            end = await offset_at(self._admin, address, self._topic, queue, window.until_ms + 1)
        if window.offset is not None:
            begin = window.offset
        elif window.last is not None:
            begin = end - window.last
        else:
            begin = await offset_at(self._admin, address, self._topic, queue, window.start)
        place = MessageQueue(self._topic, queue.broker, queue.queue_id)
        return _Range(place, max(begin, queue.min_offset), end)

    async def _merged(self, ranges: Sequence[_Range]) -> AsyncGenerator[ReceivedMessage]:
        sources = [self.read(each.queue, each.begin, each.end) for each in ranges]
        firsts = await asyncio.gather(*(anext(source, None) for source in sources))
        heads = [
            (first.store_timestamp, number, first)
            for number, first in enumerate(firsts)
            if first is not None
        ]
        heapq.heapify(heads)
        while heads:
            _, number, message = heads[0]
            yield message
            following = await anext(sources[number], None)
            if following is None:
                heapq.heappop(heads)
            else:
                heapq.heapreplace(heads, (following.store_timestamp, number, following))

    async def read(
        self, queue: MessageQueue, offset: int, end: int | None
    ) -> AsyncGenerator[ReceivedMessage]:
        """The messages of a queue to below ``end``; without ``end`` it waits for more."""
        async for batch in self.batches(queue, offset, end):
            for message in batch:
                yield message

    async def batches(
        self, queue: MessageQueue, offset: int, end: int | None
    ) -> AsyncGenerator[list[ReceivedMessage]]:
        """As :meth:`read`, by pulls."""
        while end is None or offset < end:
            answer = await self._pull(queue, offset, hold=end is None)
            if answer.code == ResponseCode.SUCCESS:
                try:
                    batch = PulledBatch(queue, answer.body, answer.next_offset, self._tags)
                except CorruptRecordError as error:
                    raise CommandError(f"{queue.broker}, queue {queue.queue_id}: {error}") from None
                yield [each for each in batch if end is None or each.queue_offset < end]
            if end is not None and answer.next_offset <= offset:
                return
            offset = answer.next_offset

    async def _pull(self, queue: MessageQueue, offset: int, *, hold: bool) -> PullAnswer:
        ext = {
            "consumerGroup": "",  # no group: nothing is counted, checked or committed
            "topic": queue.topic,
            "queueId": queue.queue_id,
            "queueOffset": offset,
            "maxMsgNums": PULL_MESSAGES,
            "sysFlag": PULL_SUBSCRIPTION | (PULL_SUSPEND if hold else 0),
            "commitOffset": 0,
            "suspendTimeoutMillis": HOLD_MS,
            "subscription": self._subscription.expression,
            "subVersion": 0,
            "expressionType": self._subscription.expression_type,
        }

        async def pull() -> PullAnswer:
            if queue.broker not in self._masters:
                self._masters |= (await self._admin.route(self._topic)).masters
            try:
                address = self._masters[queue.broker]
                answer = await self._admin.ask(address, RequestCode.PULL_MESSAGE, ext)
            except RefusedError as error:
                if error.code not in PULL_CODES:
                    raise
                return PullAnswer(error.code, int(str(error.ext["nextBeginOffset"])), b"")
            except (UnreachableError, NoAnswerError) as error:
                self._masters |= (await self._admin.route(self._topic)).masters
                raise NoLeaderError(str(error)) from error
            return PullAnswer(
                answer.code, int(str(answer.ext["nextBeginOffset"])), bytes(answer.body)
            )

        return await when_led(pull)
