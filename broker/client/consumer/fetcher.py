"""Fetches one queue: pull after pull from its group's offset, also when the leader changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from typing import Literal, Protocol, TypeAlias

from broker.client.consumer.consumer_requests import ConsumerRequests, PullAnswer, pull_answer
from broker.client.consumer.offset_store import OffsetStore
from broker.client.errors import NOT_YET, BadAnswerError, ClientError, Failure, NoLeaderError
from broker.client.message import MessageQueue
from broker.client.received_message import PulledBatch, TagFilter
from broker.client.route.route_cache import Routes
from broker.filter.subscription import SQL_TYPE, Subscription
from broker.remoting.protocol.codes import ResponseCode
from broker.remoting.protocol.errors import CallError, ConnectionLostError
from broker.remoting.protocol.frame import Frame
from store.errors import CorruptRecordError

logger = logging.getLogger("dledger.client")

StartFrom: TypeAlias = Literal["earliest", "latest"] | int
"""Where a group starts in a queue without a committed offset; a number is a time in
milliseconds."""

BATCHES_AHEAD = 2
"""The most batches of one queue that were pulled and not taken yet."""

EMPTY_PULL_SECONDS = 0.1
"""The least duration of a pull without messages, also if the broker does not hold it."""

BEHIND_SECONDS = 10.0
"""How long a broker must repeat that a queue ends before the last read message. Until then the
client takes the broker for a deposed leader; later, it takes the topic for deleted and created
again."""


class Sink(Protocol):
    """Takes the batches of fetchers."""

    def has_room(self) -> bool: ...

    def put(self, fetcher: Fetcher, batch: PulledBatch) -> None: ...

    def begin_again(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Stops the fetchers of these queues and starts others at ``offsets``."""

    def failed(self, address: str | None, queue: MessageQueue, error: Failure) -> None: ...


class LaggingBrokerError(ClientError):
    """A broker's queue ends before the last message that this client has read."""

    retriable = True


class Fetcher:
    """Pulls one queue until it is stopped."""

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        routes: Routes,
        requests: ConsumerRequests,
        offsets: OffsetStore,
        sink: Sink,
        queue: MessageQueue,
        subscription: Subscription,
        start_from: StartFrom,
        made_at_ms: int,
        start_at: int | None,
        broadcast: bool,
        wait_seconds: float,
    ) -> None:
        """The queue starts after ``wait_seconds``.

        ``start_at``: the offset to which it was moved (:meth:`OffsetStore.reset`), whatever is
        committed; None: it starts at the group's. ``made_at_ms``: when the consumer was made. With
        "latest" a queue that has appeared since starts there: its end may be behind new messages.
        """
        self.queue = queue
        self.ahead = 0
        """Batches in the sink that the program has not taken yet."""
        self.obstacle: Failure | None = ClientError(NOT_YET) if start_at is None else None
        """Why the queue could not start so far; None once it has."""
        self._loop = loop
        self._routes = routes
        self._requests = requests
        self._offsets = offsets
        self._sink = sink
        self._subscription = subscription
        self._tags = tag_filter(subscription)
        self._start_from = start_from
        self._made_at_ms = made_at_ms
        self._broadcast = broadcast
        self._next_offset = start_at or 0
        self._pulling: asyncio.Future[Frame] | None = None
        self._address: str | None = None
        self._room: asyncio.Future[None] | None = None
        self._behind_since: float | None = None
        self._task = loop.create_task(self._run(wait_seconds))

    @property
    def has_begun(self) -> bool:
        """Whether the queue has started. Only then its offsets are those of this member."""
        return self.obstacle is None

    def stop(self) -> Awaitable[object]:
        """Ends the pulls: from now on nothing is put into the sink. Messages there stay. The result
        tells when its task has ended; it need not be awaited."""
        self._task.cancel()
        return asyncio.gather(self._task, return_exceptions=True)

    def wake(self) -> None:
        """Checks again whether the sink has room."""
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def check_leader(self) -> None:
        """After a change of the route: ends a pull that an old leader may hold."""
        pulling = self._pulling
        if pulling is not None and not pulling.done():
            try:
                leader = self._routes.leader(self.queue)
            except NoLeaderError:
                return  # the old leader may also be the next
            if leader != self._address:
                pulling.set_exception(ConnectionLostError(leader, "leads now"))

    async def _run(self, wait_seconds: float) -> None:
        await asyncio.sleep(wait_seconds)
        while not self._task.cancelling():  # the sink stops this fetcher when it moves the queue
            try:
                if not self.has_begun:
                    await self._begin()
                await self._wait_for_room()
                await self._pull()
            except (CallError, ClientError) as error:
                if not self.has_begun:
                    self.obstacle = error
                self._sink.failed(self._address, self.queue, error)
                await self._routes.recover(self.queue.topic, self.queue.broker, until_led=True)

    async def _begin(self) -> None:
        self._address = address = self._routes.leader(self.queue)
        committed = None
        if not self._broadcast:
            committed = await self._requests.committed_offset(address, self.queue)
        known = self._offsets.acknowledged(self.queue)
        if known is None and committed is None:
            offset = committed = await self._first_offset(address)
        else:
            offset = max(known or 0, committed or 0)
        self._offsets.begin(self.queue, offset, committed)
        self._next_offset = offset
        self.obstacle = None

    async def _first_offset(self, address: str) -> int:
        """Where the group begins. Another member would begin there too, also after a crash of this
        one: a later end or time is committed at once."""
        if self._start_from == "earliest":
            return await self._requests.min_offset(address, self.queue)
        if self._start_from != "latest":
            offset = await self._requests.search_offset(address, self.queue, self._start_from)
        elif self._routes.is_new(self.queue):
            offset = await self._requests.search_offset(address, self.queue, self._made_at_ms)
        else:
            offset = await self._requests.max_offset(address, self.queue)
        if not self._broadcast:
            await self._requests.commit_offset(address, self.queue, offset)
        return offset

    async def _wait_for_room(self) -> None:
        while self.ahead >= BATCHES_AHEAD or not self._sink.has_room():
            self._room = self._loop.create_future()
            await self._room
            self._room = None

    async def _pull(self) -> None:
        self._address = address = self._routes.leader(self.queue)
        asked_at = self._loop.time()
        self._pulling = self._requests.pull(
            address, self.queue, self._next_offset, self._subscription
        )
        try:
            answer = pull_answer(address, await self._pulling)
        finally:
            self._pulling = None
        if answer.code == ResponseCode.PULL_OFFSET_MOVED:
            self._move(answer, address)
            return
        self._behind_since = None
        if answer.code == ResponseCode.SUCCESS:
            self._take(answer, address)
        elif answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY:
            self._skip_to(answer.next_offset)
        elif self._loop.time() - asked_at < EMPTY_PULL_SECONDS:
            await asyncio.sleep(EMPTY_PULL_SECONDS)
        if answer.leads:
            return
        if answer.code == ResponseCode.SUCCESS:  # it may have more, and be all that is reached
            self._routes.doubt(self.queue.topic, self.queue.broker)
        else:
            await self._routes.recover(self.queue.topic, self.queue.broker)

    def _take(self, answer: PullAnswer, address: str) -> None:
        try:
            batch = PulledBatch(self.queue, answer.body, answer.next_offset, self._tags)
        except CorruptRecordError as error:
            raise BadAnswerError(address, str(error)) from None
        if answer.next_offset <= self._next_offset:
            raise BadAnswerError(
                address, f"messages from {self._next_offset}, but next {answer.next_offset}"
            )
        if batch:
            self._next_offset = answer.next_offset
            self.ahead += 1
            self._sink.put(self, batch)
        else:
            self._skip_to(answer.next_offset)

    def _skip_to(self, offset: int) -> None:
        """Skips messages that are not for this group. The offset is committed only if all earlier
        messages are acknowledged."""
        if offset > self._next_offset:
            self._offsets.skip(self.queue, self._next_offset, offset)
            self._next_offset = offset

    def _move(self, answer: PullAnswer, address: str) -> None:
        asked, following = self._next_offset, answer.next_offset
        if asked > answer.max_offset:
            now = self._loop.time()
            if self._behind_since is None:
                self._behind_since = now
            if now - self._behind_since < BEHIND_SECONDS:
                raise LaggingBrokerError(
                    f"{address} has {self.queue} only up to {answer.max_offset}, "
                    f"but it was read up to {asked}"
                )
        self._behind_since = None
        if asked < answer.min_offset and asked < following:
            logger.warning("%s: offset %d is gone, going on at %d", self.queue, asked, following)
            self._skip_to(following)
        else:  # the topic was created again, or an operator has reset the group
            logger.warning("%s: moved from offset %d to %d", self.queue, asked, following)
            self._sink.begin_again({self.queue: following})


def tag_filter(subscription: Subscription) -> TagFilter:
    if subscription.expression in {"", "*"} or subscription.expression_type == SQL_TYPE:
        return None
    return frozenset(tag.strip().encode() for tag in subscription.expression.split("||"))
