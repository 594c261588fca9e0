"""The consumer with which a program receives messages, alone or in a group."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from random import Random
from typing import NamedTuple

from broker.client.client_identity import ClientIdentity, local_identity
from broker.client.config import ConsumerConfig, security_of
from broker.client.consumer.consumer_requests import ConsumerRequests
from broker.client.consumer.fetcher import Fetcher, StartFrom
from broker.client.consumer.group_membership import GroupMembership, Share
from broker.client.consumer.message_selector import Sql, subscription
from broker.client.consumer.offset_reset_body import reset_offsets
from broker.client.consumer.offset_store import OffsetStore
from broker.client.errors import ClosedError, Failure, RefusedError
from broker.client.message import MessageQueue
from broker.client.received_message import PulledBatch, ReceivedMessage
from broker.client.route.leader_calls import until_answered
from broker.client.route.route_cache import Routes
from broker.client.route.topic_route import TopicRoute
from broker.filter.subscription import ALL, Subscription
from broker.remoting.client import RemotingClient
from broker.remoting.connection import Connection
from broker.remoting.protocol.addresses import parse_name_servers
from broker.remoting.protocol.codes import RequestCode
from broker.remoting.protocol.errors import CallError
from broker.remoting.protocol.ext_fields import ext_str
from broker.remoting.protocol.frame import Frame
from broker.system.wall_clock import system_clock_ms
from broker.topics_and_groups import retry_topic

logger = logging.getLogger("dledger.client")


class _OpenedBatch(NamedTuple):
    """A batch whose messages are handed out one by one, numbered from 1."""

    batch: PulledBatch
    rest: Iterator[tuple[int, ReceivedMessage]]


class Consumer:
    """One member of a consumer group. Make it inside the event loop that it will run in::

        async with Consumer("127.0.0.1:9876", "printers", {"orders": "*"}) as consumer:
            async for message in consumer.messages():
                print(message.body)

    Iterating over the consumer itself gives batches, which the program acknowledges itself.

    The members of the group share out the queues. With ``broadcast`` each member gets all queues
    and keeps its own offsets. Messages of a queue come in order. Acknowledged messages do not come
    again in this run. Their offsets are committed every few seconds and at the close. After a
    crash, messages behind the committed offset come again.
    """

    def __init__(
        self,
        name_servers: str,
        group: str,
        subscriptions: Mapping[str, str | Sql],
        *,
        start_from: StartFrom = "latest",
        broadcast: bool = False,
        retries: bool = False,
        config: ConsumerConfig | None = None,
        wall_clock: Callable[[], int] = system_clock_ms,
        rng: Random | None = None,
        identity: ClientIdentity | None = None,
    ) -> None:
        """``subscriptions``: for each topic a tag expression, ``*`` or ``TagA || TagB``, or an
        :class:`~broker.client.consumer.message_selector.Sql` expression over the properties.

        ``start_from`` is where the group starts in a queue without a committed offset. With
        "latest", a queue that appears later starts at the time at which this consumer was made, by
        this machine's clock. With ``retries`` the member also gets messages that members sent back
        (:meth:`send_back`). Raises ``ExpressionError`` for tags that are none or too long.
        """
        if retries and broadcast:
            raise ValueError("broadcast messages cannot be sent back, so there are no retries")
        self._config = config or ConsumerConfig()
        self._loop = asyncio.get_running_loop()
        self._start_from = start_from
        self._broadcast = broadcast
        rng = rng or Random()
        client_id = (identity or local_identity(rng)).client_id
        self._made_at_ms = version = wall_clock()
        self._subscriptions = {
            topic: subscription(topic, wanted, version) for topic, wanted in subscriptions.items()
        }
        if retries:
            again = retry_topic(group)
            self._subscriptions[again] = Subscription(again, ALL, version)
        handlers = {
            int(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED): self._members_changed,
            int(RequestCode.RESET_CONSUMER_CLIENT_OFFSET): self._group_reset,
        }
        security = security_of(self._config)
        self._remoting = RemotingClient(self._loop, handlers, on_lost=self._lost, security=security)
        self._routes = Routes(self._loop, self._remoting, parse_name_servers(name_servers), rng)
        self._requests = ConsumerRequests(self._remoting, self._config, group, client_id)
        self._group = group
        self._retry_topic = retry_topic(group)
        self._offsets = OffsetStore(self._requests, self._routes)
        self._membership = GroupMembership(
            loop=self._loop,
            routes=self._routes,
            requests=self._requests,
            config=self._config,
            client_id=client_id,
            subscriptions=self._subscriptions,
            broadcast=broadcast,
            latest=start_from == "latest",
            assign=self._assign,
        )
        self._fetchers: dict[MessageQueue, Fetcher] = {}
        self._ready: deque[tuple[Fetcher, PulledBatch]] = deque()
        self._ready_bytes = 0
        self._arrival = asyncio.Event()
        """Set when a batch has come, or the consumer is closed."""
        self._committing: asyncio.Task[None] | None = None
        self._opened: _OpenedBatch | None = None
        """The batch that :meth:`messages` has begun and not finished."""
        self._closed = False

    async def start(self) -> None:
        """Joins the group. Messages come as soon as there is a leader."""
        self._routes.on_change(self._route_changed)
        self._routes.start()
        self._membership.start()
        if not self._broadcast:
            self._committing = self._loop.create_task(self._commit_regularly())

    async def close(self) -> None:
        """Commits acknowledged messages, if possible in time, and leaves the group, also if it is
        cancelled."""
        if self._closed:
            return
        self._closed = True
        self._arrival.set()
        ended = [fetcher.stop() for fetcher in self._fetchers.values()]
        if self._committing is not None:
            self._committing.cancel()
        try:
            await asyncio.gather(*ended)
            if not await self.commit():
                logger.warning("some offsets could not be committed; their messages come again")
            await self._membership.stop()
        except asyncio.CancelledError:
            self._membership.cancel()
            await self._disconnect()
            raise
        await self._disconnect()

    async def _disconnect(self) -> None:
        self._routes.close()
        await self._remoting.close()

    async def __aenter__(self) -> Consumer:
        await self.start()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    @property
    def queues(self) -> list[MessageQueue]:
        """The present queues of this member, sorted."""
        return sorted(self._fetchers)

    @property
    def obstacle(self) -> Failure | None:
        """The failure that has kept this member, since its start, from its share of the queues or
        from one of its queues. None if all queues were reached: no messages means none left."""
        if self._membership.obstacle is not None:
            return self._membership.obstacle
        obstacles = (fetcher.obstacle for fetcher in self._fetchers.values())
        return next((obstacle for obstacle in obstacles if obstacle is not None), None)

    async def next_batch(self) -> PulledBatch:
        """Waits for the next messages of any queue. Raises :class:`ClosedError` once closed."""
        while not self._ready:
            if self._closed:
                raise ClosedError("the consumer is closed")
            self._arrival.clear()
            await self._arrival.wait()
        fetcher, batch = self._ready.popleft()
        had_room = self.has_room()
        self._ready_bytes -= batch.size
        fetcher.ahead -= 1
        fetcher.wake()
        self._offsets.hand_out(batch.queue, batch.next_offset)
        if not had_room and self.has_room():
            for other in self._fetchers.values():
                other.wake()
        return batch

    async def __aiter__(self) -> AsyncIterator[PulledBatch]:
        while not self._closed:
            try:
                batch = await self.next_batch()
            except ClosedError:
                return
            yield batch

    async def messages(self) -> AsyncIterator[ReceivedMessage]:
        """The messages of all queues, one by one. Taking the next message acknowledges the one
        before. So a loop that ends by an error or ``break`` has not acknowledged its last message.
        Another loop continues behind that message.
        """
        while not self._closed:
            if self._opened is None:
                try:
                    batch = await self.next_batch()
                except ClosedError:
                    return
                self._opened = _OpenedBatch(batch, enumerate(batch, 1))
            opened = self._opened
            following = next(opened.rest, None)
            if following is None:
                self._opened = None
                continue
            count, message = following
            yield message
            self.acknowledge(message.queue, opened.batch.offset_after(count))

    async def send_back(self, message: ReceivedMessage, delay_level: int = 0) -> None:
        """Sends back a message that could not be consumed; a member with ``retries`` gets it again.

        With ``delay_level`` 0 the broker chooses the delay: 10 s, longer with each attempt. After
        ``max_reconsume_times`` retries (default: what the group's settings say), or at once with a
        level below 0, the message goes to ``%DLQ%group``. The message itself must still be
        acknowledged. If an answer is lost, the message may come again twice. Raises a
        :class:`ClientError`.
        """
        await until_answered(
            self._routes,
            message.queue,
            lambda address: self._requests.send_back(address, message, delay_level),
            seconds=self._config.send_back_seconds,
            operation=f"sending back message {message.message_id}",
        )

    async def rewind(self, timestamp_ms: int) -> None:
        """Moves this member's queues, forward or back, to the first message that is not older than
        ``timestamp_ms``.

        The queues of other members stay; an operator's ``dledger group reset-offset`` moves all.
        Raises a :class:`ClientError` or :class:`~broker.remoting.protocol.errors.CallError`, and
        then no queue has moved.
        """
        queues = self.queues
        offsets = await asyncio.gather(
            *(
                self._requests.search_offset(self._routes.leader(queue), queue, timestamp_ms)
                for queue in queues
            )
        )
        self.begin_again(dict(zip(queues, offsets, strict=True)))

    def acknowledge(self, queue: MessageQueue, next_offset: int) -> None:
        """Acknowledges all messages of the queue before ``next_offset``."""
        self._offsets.acknowledge(queue, next_offset)

    async def commit(self) -> bool:
        """Commits acknowledged messages; tries for ``close_seconds``. Returns whether all are
        committed."""
        if self._broadcast:
            return True
        try:
            async with asyncio.timeout(self._config.close_seconds):
                while queues := self._uncommitted():
                    if not await self._offsets.commit(queues):
                        await self._routes.recover(
                            queues[0].topic, queues[0].broker, until_led=True
                        )
        except (TimeoutError, ClosedError):
            return False
        return True

    # Called by fetchers.

    def has_room(self) -> bool:
        """Whether more messages may be pulled."""
        return self._ready_bytes < self._config.buffered_bytes_max

    def put(self, fetcher: Fetcher, batch: PulledBatch) -> None:
        """Takes a pulled batch."""
        self._ready.append((fetcher, batch))
        self._ready_bytes += batch.size
        self._arrival.set()

    def begin_again(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Moves queues, in one step: of several moves the last one counts."""
        for queue, offset in offsets.items():
            self._offsets.reset(queue, offset)
            fetcher = self._fetchers.get(queue)  # None: another member's queue, which may come back
            if fetcher is not None and not self._closed:
                self._drop_batches(fetcher)
                fetcher.stop()
                self._fetch(queue, wait_seconds=0.0, start_at=offset)

    def failed(self, address: str | None, queue: MessageQueue, error: Failure) -> None:
        """A pull failed; it will be tried again."""
        if isinstance(error, RefusedError) and not error.retriable:
            logger.warning("%s, queue %d: %s", queue.broker, queue.queue_id, error)
        else:
            logger.debug("%s, queue %d: %s", queue.broker, queue.queue_id, error)
        if address is not None and isinstance(error, CallError):
            self._membership.lost(address)

    # Background tasks.

    def _lost(self, address: str) -> None:
        self._membership.disconnected(address)

    def _members_changed(self, _: Connection, request: Frame) -> None:
        """Request 40 of a broker."""
        if ext_str(request, "consumerGroup") == self._group:
            self._membership.rebalance_soon()

    def _group_reset(self, _: Connection, request: Frame) -> None:
        """Request 220 of a broker: an operator has moved the group."""
        if ext_str(request, "group") == self._group and not self._closed:
            offsets = reset_offsets(request.body)
            logger.warning("an operator reset the group: %s", offsets)
            self.begin_again(offsets)

    def _route_changed(self, route: TopicRoute) -> None:
        if route.topic in self._subscriptions:
            for queue, fetcher in self._fetchers.items():
                if queue.topic == route.topic:
                    fetcher.check_leader()
            self._membership.rebalance_soon()

    async def _assign(self, share: Share) -> None:
        wanted = dict.fromkeys(share.queues)
        for queue in self.queues:
            if queue.topic == share.topic and queue not in wanted:
                await self._give_up(queue)
        for queue in share.queues:
            if queue not in self._fetchers and not self._closed:
                handover_seconds = self._config.handover_seconds if share.has_others else 0.0
                self._fetch(queue, wait_seconds=handover_seconds)

    def _fetch(
        self, queue: MessageQueue, *, wait_seconds: float, start_at: int | None = None
    ) -> None:
        self._fetchers[queue] = Fetcher(
            loop=self._loop,
            routes=self._routes,
            requests=self._requests,
            offsets=self._offsets,
            sink=self,
            queue=queue,
            subscription=self._subscriptions[queue.topic],
            # The retry topic may not exist before a message is sent back.
            start_from="earliest" if queue.topic == self._retry_topic else self._start_from,
            made_at_ms=self._made_at_ms,
            start_at=start_at,
            broadcast=self._broadcast,
            wait_seconds=wait_seconds,
        )

    async def _stop(self, fetcher: Fetcher) -> None:
        """Drops its batches before it waits, so that none is handed out meanwhile."""
        self._drop_batches(fetcher)
        await fetcher.stop()

    def _drop_batches(self, fetcher: Fetcher) -> None:
        if self._opened is not None and self._opened.batch.queue == fetcher.queue:
            self._opened = None
        kept = [(owner, batch) for owner, batch in self._ready if owner is not fetcher]
        self._ready = deque(kept)
        self._ready_bytes = sum(batch.size for _, batch in kept)
        for other in self._fetchers.values():
            other.wake()

    async def _give_up(self, queue: MessageQueue) -> None:
        """Stops the queue and commits its offset, from which another member continues."""
        fetcher = self._fetchers.pop(queue)
        await self._stop(fetcher)
        if not self._broadcast and fetcher.has_begun and queue in self._offsets.uncommitted():
            await self._offsets.commit([queue])

    async def _commit_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._config.commit_seconds)
            await self._offsets.commit(self._uncommitted())

    def _uncommitted(self) -> list[MessageQueue]:
        """The queues with uncommitted offsets that this member has begun. What it knows of others
        may be old: another member may be further."""
        begun = {queue for queue, fetcher in self._fetchers.items() if fetcher.has_begun}
        return [queue for queue in self._offsets.uncommitted() if queue in begun]
