"""Fetches one queue: pull after pull from its group's offset, also when the leader changes."""

from __future__ import annotations

import asyncio
import logging
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
        start_at: int | None,
        broadcast: bool,
        wait_seconds: float,
    ) -> None:
        """The queue starts after ``wait_seconds``. ``start_at``: the offset at which it starts,
        whatever is committed; None: the group's."""
        self.queue = queue
        self.ahead = 0
        """Batches in the sink that the program has not taken yet."""
        self.obstacle: Failure | None = ClientError(NOT_YET)
        """Why the queue could not start so far; None once it has."""
        self._loop = loop
        self._routes = routes
        self._requests = requests
        self._offsets = offsets
        self._sink = sink
        self._subscription = subscription
        self._tags = tag_filter(subscription)
        self._start_from = start_from
        self._start_at = start_at
        self._broadcast = broadcast
        self._start_offset = 0
        self._next_offset = 0
        self._pulling: asyncio.Future[Frame] | None = None
        self._address: str | None = None
        self._room: asyncio.Future[None] | None = None
        self._behind_since: float | None = None
        self._task = loop.create_task(self._run(wait_seconds))

    async def stop(self) -> None:
        """Ends the pulls. Messages in the sink stay there."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

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
        started = False
        while True:
            try:
                if not started:
                    self._start_offset = self._next_offset = await self._first_offset()
                    started = True
                    self.obstacle = None
                await self._wait_for_room()
                await self._pull()
            except (CallError, ClientError) as error:
                if not started:
                    self.obstacle = error
                self._sink.failed(self._address, self.queue, error)
                await self._routes.recover(self.queue.topic, self.queue.broker, until_led=True)

    async def _first_offset(self) -> int:
        if self._start_at is not None:
            return self._start_at
        self._address = address = self._routes.leader(self.queue)
        known = self._offsets.acknowledged(self.queue)
        committed = None
        if not self._broadcast:
            committed = await self._requests.committed_offset(address, self.queue)
        if known is not None or committed is not None:
            return max(known or 0, committed or 0)
        if self._start_from == "earliest":
            return await self._requests.min_offset(address, self.queue)
        if self._start_from == "latest":
            offset = await self._requests.max_offset(address, self.queue)
        else:
            offset = await self._requests.search_offset(address, self.queue, self._start_from)
        # Earlier messages are not for the group. The offset is committed: otherwise tools
        # would count them as lag, and a later start would begin at a later end.
        self._offsets.acknowledge(self.queue, offset)
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
            done_with = max(self._offsets.acknowledged(self.queue) or 0, self._start_offset)
            if done_with == self._next_offset:
                self._offsets.acknowledge(self.queue, offset)
            self._next_offset = offset

    def _move(self, answer: PullAnswer, address: str) -> None:
        now = self._loop.time()
        if answer.next_offset < self._next_offset:
            if self._behind_since is None:
                self._behind_since = now
            if now - self._behind_since < BEHIND_SECONDS:
                raise LaggingBrokerError(
                    f"{address} has {self.queue} only up to {answer.next_offset}, "
                    f"but it was read up to {self._next_offset}"
                )
        logger.warning(
            "%s: offset %d is gone, going on at %d",
            self.queue,
            self._next_offset,
            answer.next_offset,
        )
        self._behind_since = None
        if answer.next_offset < self._next_offset:
            self._offsets.rewind(self.queue, answer.next_offset)
        self._next_offset = answer.next_offset


def tag_filter(subscription: Subscription) -> TagFilter:
    if subscription.expression in {"", "*"} or subscription.expression_type == SQL_TYPE:
        return None
    return frozenset(tag.strip().encode() for tag in subscription.expression.split("||"))
