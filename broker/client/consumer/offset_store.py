"""The offsets of one consumer: acknowledged and committed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from broker.client.consumer.consumer_requests import ConsumerRequests
from broker.client.errors import ClientError
from broker.client.message import MessageQueue
from broker.client.route.route_cache import Routes
from broker.remoting.protocol.errors import CallError

logger = logging.getLogger("dledger.client")


class OffsetStore:
    """Acknowledged and committed offsets by queue.

    Acknowledged offsets are kept for ever, even if the queue goes to another member and comes back.
    So within one run an acknowledged message is not handed out again, unless an operator resets the
    group. While another member has the queue it may go further, so the offset here may be old. Each
    time the queue begins, :meth:`begin` says where; before that the offset must not be committed.
    """

    def __init__(self, requests: ConsumerRequests, routes: Routes) -> None:
        self._requests = requests
        self._routes = routes
        self._acknowledged: dict[MessageQueue, int] = {}
        self._committed: dict[MessageQueue, int] = {}
        self._handed_out: dict[MessageQueue, int] = {}
        """For reset queues: the offset up to which messages were handed out since."""

    def begin(self, queue: MessageQueue, next_offset: int, committed: int | None) -> None:
        """The queue begins at ``next_offset``: all messages before count as acknowledged.
        ``committed``: where the group begins if nobody commits more; None: elsewhere."""
        self._acknowledged[queue] = next_offset
        if committed is None:
            self._committed.pop(queue, None)
        else:
            self._committed[queue] = committed

    def acknowledge(self, queue: MessageQueue, next_offset: int) -> None:
        """Acknowledges all messages of the queue before ``next_offset``."""
        if self._handed_out.get(queue, next_offset) < next_offset:
            return  # of messages from before the reset
        if next_offset > self._acknowledged.get(queue, -1):
            self._acknowledged[queue] = next_offset

    def skip(self, queue: MessageQueue, offset: int, next_offset: int) -> None:
        """The messages from ``offset`` to ``next_offset`` are not for the group. They count as
        acknowledged if all before them are."""
        if self._acknowledged.get(queue, -1) >= offset:
            self.hand_out(queue, next_offset)
            self.acknowledge(queue, next_offset)

    def reset(self, queue: MessageQueue, next_offset: int) -> None:
        """Moves the queue, also back before acknowledged messages, or on behind others."""
        self._acknowledged[queue] = self._handed_out[queue] = next_offset
        self._committed.pop(queue, None)

    def hand_out(self, queue: MessageQueue, next_offset: int) -> None:
        """Messages before ``next_offset`` were handed out, and may be acknowledged."""
        if queue in self._handed_out:
            self._handed_out[queue] = max(next_offset, self._handed_out[queue])

    def acknowledged(self, queue: MessageQueue) -> int | None:
        return self._acknowledged.get(queue)

    def uncommitted(self) -> list[MessageQueue]:
        """The queues with acknowledged offsets that are not committed."""
        return [
            queue
            for queue, offset in self._acknowledged.items()
            if self._committed.get(queue) != offset
        ]

    async def commit(self, queues: Iterable[MessageQueue]) -> bool:
        """Commits the acknowledged offsets of ``queues``, once. Returns whether all are
        committed."""
        results = await asyncio.gather(*map(self._commit, queues))
        return all(results)

    async def _commit(self, queue: MessageQueue) -> bool:
        offset = self._acknowledged[queue]
        try:
            await self._requests.commit_offset(self._routes.leader(queue), queue, offset)
        except (CallError, ClientError) as error:
            logger.debug("offset %d of %s: %s", offset, queue, error)
            return False
        self._committed[queue] = offset
        return True
