"""Sends a stream of messages: in batches, in order, as fast as the brokers take them.

Each queue has at most one request in progress, retries included, so it gets messages in order. A
batch goes to any idle queue, or to the queue of its order key. In the first case a queue without a
leader delays only its own batch. In the second, messages with the same key are in order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from broker.client.message import Message, MessageQueue, SendResult
from broker.client.producer.producer import Producer
from broker.client.producer.queue_selection import queue_index
from broker.client.producer.send_encoding import batched_size

BATCH_MESSAGES = 512
BATCH_BYTES = 1024 * 1024
BACKLOG_BYTES_MAX = 8 * 1024 * 1024
"""The bytes of waiting messages above which :meth:`Pipeline.put` waits."""

StoredCallback = Callable[[SendResult, Sequence[Message]], None]


class _Lane:
    """One queue, and the messages that wait for it."""

    __slots__ = ("backlog", "queue")

    def __init__(self, queue: MessageQueue, backlog: deque[Message]) -> None:
        self.queue = queue
        self.backlog = backlog


class Pipeline:
    """Sends to ``queues``, until drained or until a message fails for good.

    All messages must be of the queues' topic; another one fails. ``stored`` is called with each
    acknowledged request and its messages, in order for each queue. An error that it raises (a
    closed pipe, a full disk) ends the stream like a failed message.
    """

    def __init__(
        self,
        producer: Producer,
        queues: Sequence[MessageQueue],
        stored: StoredCallback,
        *,
        ordered_by_key: bool = False,
        batch_messages: int = BATCH_MESSAGES,
        batch_bytes: int = BATCH_BYTES,
    ) -> None:
        self._producer = producer
        self._loop = asyncio.get_running_loop()
        self._stored = stored
        self._batch_messages = batch_messages
        self._batch_bytes = batch_bytes
        shared: deque[Message] = deque()
        self._lanes = [_Lane(queue, deque() if ordered_by_key else shared) for queue in queues]
        self._idle = deque(self._lanes)
        """Idle queues, in the order in which they became idle."""
        self._waiting_bytes = 0
        self._failure: BaseException | None = None
        self._change: asyncio.Future[None] | None = None

    async def put(self, messages: Sequence[Message]) -> None:
        """Takes messages for any queue; waits if too many wait already.

        Raises the error of an earlier message.
        """
        await self._wait_for_room()
        size = sum(map(batched_size, messages))
        backlog = self._lanes[0].backlog
        backlog.extend(messages)
        self._waiting_bytes += size
        while self._idle and backlog and self._failure is None:
            self._start(self._idle.popleft())

    async def put_ordered(self, message: Message, key: str) -> None:
        """Takes a message for the queue of ``key``; otherwise as :meth:`put`.

        See :func:`~broker.client.producer.queue_selection.queue_index`.
        """
        await self._wait_for_room()
        size = batched_size(message)
        lane = self._lanes[queue_index(key, len(self._lanes))]
        lane.backlog.append(message)
        self._waiting_bytes += size
        if lane in self._idle:
            self._idle.remove(lane)
            # At the end of the turn, so that messages of one turn go together.
            self._loop.call_soon(self._start, lane)

    async def drain(self) -> None:
        """Returns once all messages are acknowledged. Raises the error of a failed message, once
        all requests in progress have ended.
        """
        while len(self._idle) < len(self._lanes):
            await self._changed()
        if self._failure is not None:
            raise self._failure

    async def _wait_for_room(self) -> None:
        while self._waiting_bytes >= BACKLOG_BYTES_MAX and self._failure is None:
            await self._changed()
        if self._failure is not None:
            raise self._failure

    async def _changed(self) -> None:
        if self._change is None:
            self._change = self._loop.create_future()
        # All waiters share one future; a cancelled waiter must not cancel it for the others.
        await asyncio.shield(self._change)

    def _start(self, lane: _Lane) -> None:
        """Sends the waiting messages of the lane, or makes it idle."""
        if not lane.backlog or self._failure is not None:
            self._idle.append(lane)
            self._tell()
            return
        try:
            batch = self._take(lane.backlog)
            if len(batch) == 1:  # as a delayed message requires
                answer = self._producer.send_nowait(batch[0], lane.queue)
            else:
                answer = self._producer.send_batch_nowait(batch, lane.queue)
        except Exception as error:  # noqa: BLE001 - a message can be of any type
            self._fail(lane, error)
            return
        answer.add_done_callback(partial(self._answered, lane, batch))

    def _take(self, backlog: deque[Message]) -> list[Message]:
        batch = [backlog.popleft()]
        size = batched_size(batch[0])
        if batch[0].delay_level > 0:
            return batch
        while backlog and len(batch) < self._batch_messages:
            size += batched_size(backlog[0])
            if size > self._batch_bytes or backlog[0].delay_level > 0:
                break
            batch.append(backlog.popleft())
        return batch

    def _answered(
        self, lane: _Lane, batch: Sequence[Message], answer: asyncio.Future[SendResult]
    ) -> None:
        failure = answer.exception()
        if failure is not None:
            self._fail(lane, failure)
            return
        self._waiting_bytes -= sum(map(batched_size, batch))
        try:
            self._stored(answer.result(), batch)
        except Exception as error:  # noqa: BLE001 - the caller's own callback
            self._fail(lane, error)
            return
        self._start(lane)
        self._tell()

    def _fail(self, lane: _Lane, error: BaseException) -> None:
        """Ends the stream and makes the lane idle. A drain waits for that and raises the error."""
        if self._failure is None:
            self._failure = error
        self._start(lane)

    def _tell(self) -> None:
        if self._change is not None:
            self._change.set_result(None)
            self._change = None
