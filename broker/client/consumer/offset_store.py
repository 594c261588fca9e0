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
    group.
    """

    def __init__(self, requests: ConsumerRequests, routes: Routes) -> None:
        self._requests = requests
        self._routes = routes
        self._acknowledged: dict[MessageQueue, int] = {}
        self._committed: dict[MessageQueue, int] = {}
        self._handed_out: dict[MessageQueue, int] = {}
        """For reset queues: the offset up to which messages were handed out since."""

    def acknowledge(self, queue: MessageQueue, next_offset: int) -> None:
        """Acknowledges all messages of the queue before ``next_offset``."""
        if self._handed_out.get(queue, next_offset) < next_offset:
            return  # of messages from before the reset
        if next_offset > self._acknowledged.get(queue, -1):
            self._acknowledged[queue] = next_offset

    def rewind(self, queue: MessageQueue, next_offset: int) -> None:
        """The program moves the queue, also back before acknowledged messages."""
        self._acknowledged[queue] = next_offset

    def reset(self, queue: MessageQueue, next_offset: int, *, owned: bool) -> None:
        """An operator moves the queue, also behind unacknowledged messages. If it is not ``owned``,
        its owner commits what it consumes from there: this consumer commits nothing."""
        self._acknowledged[queue] = self._handed_out[queue] = next_offset
        if not owned:
            self._committed[queue] = next_offset

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
