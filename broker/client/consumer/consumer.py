"""The consumer that a program uses to receive messages of topics, alone or in a group."""

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
from broker.client.errors import ClientError, ClosedError, DeadlineError, Failure, RefusedError
from broker.client.message import MessageQueue
from broker.client.received_message import PulledBatch, ReceivedMessage
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
    """A batch that is handed out message by message, numbered from 1 on."""

    batch: PulledBatch
    rest: Iterator[tuple[int, ReceivedMessage]]


class Consumer:
    """One member of a consumer group. Make it inside the event loop that it will run in::

        async with Consumer("127.0.0.1:9876", "printers", {"orders": "*"}) as consumer:
            async for message in consumer.messages():
                print(message.body)

    Iterating over the consumer itself gives batches, which are acknowledged by hand.

    Queues are shared among the members of the group (or, with ``broadcast``, each member gets all
    of them and keeps its own offsets). Messages of a queue come in order. Acknowledged messages are
    committed every few seconds and when the consumer is closed. They do not come again in this run.
    After a crash messages without a commit come again.
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
        """``subscriptions``: of each topic the tags wanted, ``*`` or ``TagA || TagB``, or an
        :class:`~broker.client.consumer.message_selector.Sql` expression over the properties.

        ``start_from`` is the beginning of a queue without an offset of the group. With ``retries``
        messages that members of the group sent back (:meth:`send_back`) come again too.
        """
        if retries and broadcast:
            raise ValueError("a broadcast is not sent back, so nothing of it comes again")
        self._config = config or ConsumerConfig()
        self._loop = asyncio.get_running_loop()
        self._start_from = start_from
        self._broadcast = broadcast
        rng = rng or Random()
        client_id = (identity or local_identity(rng)).client_id
        version = wall_clock()
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
        self._remoting = RemotingClient(self._loop, handlers, security=security)
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
        self._arrival: asyncio.Future[None] | None = None
        self._committing: asyncio.Task[None] | None = None
        self._resets: dict[asyncio.Task[None], None] = {}
        self._opened: _OpenedBatch | None = None
        """Messages that :meth:`messages` has started and not finished."""
        self._closed = False

    async def start(self) -> None:
        """Joins the group. Messages come as soon as there is a leader to ask."""
        self._routes.on_change(self._route_changed)
        self._routes.start()
        self._membership.start()
        if not self._broadcast:
            self._committing = self._loop.create_task(self._commit_regularly())

    async def close(self) -> None:
        """Commits acknowledged messages, as far as that is possible in time, and leaves."""
        if self._closed:
            return
        self._closed = True
        self._end_wait()
        if self._committing is not None:
            self._committing.cancel()
            await asyncio.gather(self._committing, return_exceptions=True)
        for reset in self._resets:
            reset.cancel()
        await asyncio.gather(*self._resets, return_exceptions=True)
        fetchers = list(self._fetchers.values())
        await asyncio.gather(*(fetcher.stop() for fetcher in fetchers))
        if not await self.commit():
            logger.warning("some offsets could not be committed; their messages will come again")
        await self._membership.stop()
        self._routes.close()
        await self._remoting.close()

    async def __aenter__(self) -> Consumer:
        await self.start()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that are this member's at the moment, sorted."""
        return sorted(self._fetchers)

    @property
    def obstacle(self) -> Failure | None:
        """The obstacle that has kept this member, ever since it started, from its share of the
        queues or from a queue of it; None if all were reached: then no messages means that none are
        left.
        """
        if self._membership.obstacle is not None:
            return self._membership.obstacle
        obstacles = (fetcher.obstacle for fetcher in self._fetchers.values())
        return next((obstacle for obstacle in obstacles if obstacle is not None), None)

    async def next_batch(self) -> PulledBatch:
        """The next messages of any queue; waits until there are any.

        Raises :class:`ClosedError` when the consumer is closed.
        """
        while not self._ready:
            if self._closed:
                raise ClosedError("the consumer is closed")
            self._arrival = self._loop.create_future()
            await self._arrival
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
        """One message after the other, of all queues. Asking for the next one acknowledges the one
        before. So a loop that ends by an error or ``break`` has not acknowledged its last message;
        another loop goes on behind it.
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
        """The message could not be consumed: members of the group with ``retries`` get it again.

        Level 0 leaves the delay to the broker: 10 s, longer with each attempt. After
        ``max_reconsume_times``, or at once below 0, the message goes to ``%DLQ%group``. The message
        itself must still be acknowledged. If an answer is lost, the message may come again twice.
        Raises a :class:`ClientError`.
        """
        queue, seconds, last = message.queue, self._config.send_back_seconds, None
        try:
            async with asyncio.timeout(seconds):
                while True:
                    try:
                        address = self._routes.leader(queue)
                        await self._requests.send_back(address, message, delay_level)
                        return
                    except (CallError, ClientError) as error:
                        if not error.retriable:
                            raise
                        last = error
                    await self._routes.recover(queue.topic, queue.broker)
        except TimeoutError:
            what = f"sending back message {message.message_id}"
            raise DeadlineError(what, seconds, last) from None

    async def rewind(self, timestamp_ms: int) -> None:
        """Moves this member's queues, forward or back, to the first message not older than that.

        Other members stay; an operator's ``dledger group reset-offset`` moves them all. Raises a
        :class:`ClientError` or :class:`~broker.remoting.protocol.errors.CallError`, and then no
        queue has moved.
        """
        queues = self.queues
        offsets = await asyncio.gather(
            *(
                self._requests.search_offset(self._routes.leader(queue), queue, timestamp_ms)
                for queue in queues
            )
        )
        await self._begin_again(dict(zip(queues, offsets, strict=True)))

    def acknowledge(self, queue: MessageQueue, next_offset: int) -> None:
        """Everything of the queue before ``next_offset`` is done with."""
        self._offsets.acknowledge(queue, next_offset)

    async def commit(self) -> bool:
        """Commits what was acknowledged; tries for ``close_seconds``. Whether all is committed."""
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

    # Called by fetchers: they put batches here.

    def has_room(self) -> bool:
        """Whether more may be pulled."""
        return self._ready_bytes < self._config.buffered_bytes_max

    def put(self, fetcher: Fetcher, batch: PulledBatch) -> None:
        """Takes in what was pulled."""
        self._ready.append((fetcher, batch))
        self._ready_bytes += batch.size
        self._end_wait()

    def failed(self, address: str | None, queue: MessageQueue, error: Failure) -> None:
        """A pull failed; it will be tried again."""
        if isinstance(error, RefusedError) and not error.retriable:
            logger.warning("%s, queue %d: %s", queue.broker, queue.queue_id, error)
        else:
            logger.debug("%s, queue %d: %s", queue.broker, queue.queue_id, error)
        if address is not None and isinstance(error, CallError):
            self._membership.lost(address)

    # Background tasks.

    def _members_changed(self, _: Connection, request: Frame) -> None:
        """Request 40 of a broker."""
        if ext_str(request, "consumerGroup") == self._group:
            self._membership.rebalance_soon()

    def _group_reset(self, _: Connection, request: Frame) -> None:
        """Request 220 of a broker: an operator has moved the group."""
        if ext_str(request, "group") == self._group and not self._closed:
            offsets = reset_offsets(request.body)
            logger.warning("an operator reset the group: %s", offsets)
            task = self._loop.create_task(self._begin_again(offsets))
            self._resets[task] = None
            task.add_done_callback(lambda done: self._resets.pop(done, None))

    async def _begin_again(self, offsets: Mapping[MessageQueue, int]) -> None:
        for queue, offset in offsets.items():
            fetcher = self._fetchers.get(queue)
            if fetcher is None:
                continue
            self._offsets.reset(queue, offset)
            await self._stop(fetcher)
            if self._fetchers.get(queue) is fetcher:
                self._fetch(queue, wait_seconds=0.0)

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

    def _fetch(self, queue: MessageQueue, *, wait_seconds: float) -> None:
        self._fetchers[queue] = Fetcher(
            loop=self._loop,
            routes=self._routes,
            requests=self._requests,
            offsets=self._offsets,
            sink=self,
            queue=queue,
            subscription=self._subscriptions[queue.topic],
            # The retry topic exists once a message was sent back.
            start_from="earliest" if queue.topic == self._retry_topic else self._start_from,
            broadcast=self._broadcast,
            wait_seconds=wait_seconds,
        )

    async def _stop(self, fetcher: Fetcher) -> None:
        await fetcher.stop()
        if self._opened is not None and self._opened.batch.queue == fetcher.queue:
            self._opened = None
        kept = [(owner, batch) for owner, batch in self._ready if owner is not fetcher]
        self._ready = deque(kept)
        self._ready_bytes = sum(batch.size for _, batch in kept)

    async def _give_up(self, queue: MessageQueue) -> None:
        """Another member will go on with the queue from its commit."""
        await self._stop(self._fetchers.pop(queue))
        if not self._broadcast and queue in self._offsets.uncommitted():
            await self._offsets.commit([queue])

    async def _commit_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._config.commit_seconds)
            await self._offsets.commit(self._uncommitted())

    def _uncommitted(self) -> list[MessageQueue]:
        """Only this member's queues: the next owners of others may be further already."""
        return [queue for queue in self._offsets.uncommitted() if queue in self._fetchers]

    def _end_wait(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)
