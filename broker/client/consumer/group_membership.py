"""Membership in a group: heartbeats to every leader, and this member's share of the queues.

Brokers do not replicate connections. A new leader learns of the members by their heartbeats, so at
first it knows only one member. Therefore the assignment of queues stays for ``settle_seconds``
after a new leader got the first heartbeat. If no leader can be asked for the members, the
assignment stays, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from broker.client.config import ConsumerConfig
from broker.client.consumer.consumer_requests import ConsumerRequests
from broker.client.consumer.queue_assignment import allocate
from broker.client.errors import (
    NOT_YET,
    AccessDeniedError,
    ClientError,
    Failure,
    NoLeaderError,
)
from broker.client.message import MessageQueue
from broker.client.route.route_cache import Routes
from broker.filter.subscription import Subscription
from broker.remoting.protocol.errors import CallError

logger = logging.getLogger("dledger.client")

GREET_AGAIN_SECONDS = 0.5
"""The pause after a failed heartbeat."""
COMPLAIN_SECONDS = 2.0
"""The duration from which a failure is logged."""


class Share(NamedTuple):
    """The queues of a topic that are assigned to this member."""

    topic: str
    queues: list[MessageQueue]
    has_others: bool
    """Whether there are other members, which may have had these queues."""


Assign = Callable[[Share], Awaitable[None]]


class NotMemberError(ClientError):
    """A broker has forgotten this client, until the next heartbeat."""

    retriable = True


class GroupMembership:
    """Keeps one client a member of its group."""

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        routes: Routes,
        requests: ConsumerRequests,
        config: ConsumerConfig,
        client_id: str,
        subscriptions: Mapping[str, Subscription],
        broadcast: bool,
        latest: bool,
        assign: Assign,
    ) -> None:
        self._loop = loop
        self._routes = routes
        self._requests = requests
        self._config = config
        self._client_id = client_id
        self._subscriptions = subscriptions
        self._broadcast = broadcast
        self._latest = latest
        self._assign = assign
        self._heartbeat_sent: dict[str, float] = {}
        """Leaders that know this client, with the time of the latest heartbeat."""
        self._denied: AccessDeniedError | None = None
        """The refusal of a heartbeat for lack of permission. Other requests would only show that
        the group has no member."""
        self._assigned = False
        self.obstacle: Failure | None = ClientError(NOT_YET)
        """Why this client has not had a share of the queues yet; None once it has."""
        self._failing_since: float | None = None
        self._complaint = ""
        self._settled_at = 0.0
        self._rebalance_at = loop.time()
        self._wake: asyncio.Event = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._wake.set()
        self._task = self._loop.create_task(self._run())

    def cancel(self) -> None:
        """Sends no more heartbeats."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    async def stop(self) -> None:
        """Leaves the group; reachable brokers are notified."""
        self.cancel()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
        goodbyes = [self._requests.unregister(address) for address in self._heartbeat_sent]
        await asyncio.gather(*goodbyes, return_exceptions=True)

    def rebalance_soon(self) -> None:
        """Computes the shares again soon: members, queues or leaders may have changed."""
        self._rebalance_at = min(self._rebalance_at, self._loop.time())
        self._wake.set()

    def lost(self, address: str) -> None:
        """A connection broke, so the broker has forgotten this client."""
        if self._heartbeat_sent.pop(address, None) is not None:
            self._wake.set()

    def disconnected(self, address: str) -> None:
        """As :meth:`lost`, for any connection. The broker may lead no more, and nothing else tells
        that if only heartbeats go there."""
        self.lost(address)
        self._doubt(address)

    def _doubt(self, address: str) -> None:
        """Looks up the routes that are led from there. Otherwise this client would greet the next
        leader late, and the other members would take its queues."""
        for topic in self._subscriptions:
            route = self._routes.cached(topic)
            for broker, leader in ({} if route is None else route.leaders()).items():
                if leader == address:
                    self._routes.doubt(topic, broker)

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._find_routes()
            await self._send_heartbeat()
            for topic, broker in self._leaderless():
                self._routes.doubt(topic, broker)
            now = self._loop.time()
            if now >= self._rebalance_at:
                if self._assigned and now < self._settled_at:
                    self._rebalance_at = self._settled_at
                else:
                    self._rebalance_at = now + self._config.rebalance_seconds
                    await self._rebalance()
            self._set_timer()

    def _set_timer(self) -> None:
        due = self._rebalance_at
        if self._leaderless():
            due = min(due, self._loop.time() + GREET_AGAIN_SECONDS)
        for address in self._leaders():
            last = self._heartbeat_sent.get(address)
            if last is None:
                due = min(due, self._loop.time() + GREET_AGAIN_SECONDS)
            else:
                due = min(due, last + self._config.heartbeat_seconds)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(due, self._wake.set)

    async def _find_routes(self) -> None:
        for topic in self._subscriptions:
            if self._routes.cached(topic) is None:
                try:
                    await self._routes.refresh(topic)
                except ClientError as error:
                    self._complain(error)

    async def _send_heartbeat(self) -> None:
        """Sends a heartbeat to each leader without a recent one."""
        leaders = self._leaders()
        self._heartbeat_sent = {
            address: at for address, at in self._heartbeat_sent.items() if address in leaders
        }
        for address in leaders:
            last = self._heartbeat_sent.get(address)
            now = self._loop.time()
            # The same sum as for the timer: a difference may round to less, and then the
            # timer would fire at once, again and again.
            if last is not None and now < last + self._config.heartbeat_seconds:
                continue
            try:
                await self._requests.heartbeat(
                    address,
                    self._subscriptions.values(),
                    broadcast=self._broadcast,
                    latest=self._latest,
                )
            except (CallError, ClientError) as error:
                logger.debug("heartbeat to %s: %s", address, error)
                self._heartbeat_sent.pop(address, None)
                if isinstance(error, AccessDeniedError):
                    self._denied = error
                else:
                    self._doubt(address)
                continue
            self._denied = None
            self._heartbeat_sent[address] = self._loop.time()
            if last is None and self._assigned:
                self._settled_at = self._loop.time() + self._config.settle_seconds

    def _leaders(self) -> dict[str, None]:
        routes = [self._routes.cached(topic) for topic in self._subscriptions]
        return {
            address: None
            for route in routes
            if route is not None
            for address in route.leaders().values()
        }

    def _leaderless(self) -> list[tuple[str, str]]:
        """Topics and brokers whose leader the route does not name. Another member may greet the
        next one first; then it is told of no other member, and takes all queues."""
        routes = [self._routes.cached(topic) for topic in self._subscriptions]
        return [
            (route.topic, broker)
            for route in routes
            if route is not None
            for broker in sorted({queue.broker for queue in route.read_queues})
            if route.leader(broker) is None
        ]

    async def _rebalance(self) -> None:
        for topic in self._subscriptions:
            try:
                share = await self._share(topic)
            except (CallError, ClientError) as error:
                self._complain(self._denied or error)
                culprit = error.broker if isinstance(error, NoLeaderError) else topic
                await self._routes.recover(topic, culprit)
                self.rebalance_soon()
                continue
            await self._assign(share)
            self._assigned = True
            self.obstacle = None
            self._failing_since = None
            self._complaint = ""

    async def _share(self, topic: str) -> Share:
        route = await self._routes.get(topic)
        if self._broadcast:
            return Share(topic, list(route.read_queues), has_others=False)
        leaders = route.leaders()
        if not leaders:
            raise NoLeaderError(route.read_queues[0].broker if route.read_queues else topic)
        address = leaders[min(leaders)]  # every member asks the same one
        ids = await self._requests.client_ids(address)
        if self._client_id not in ids:
            self.lost(address)
            raise NotMemberError(f"{address} does not know {self._client_id} yet")
        queues = allocate(route.read_queues, ids, self._client_id)
        return Share(topic, queues, has_others=len(ids) > 1)

    def _complain(self, error: Failure) -> None:
        """Logs a lasting failure, once."""
        if not self._assigned:
            self.obstacle = error
        what = str(error)
        now = self._loop.time()
        if self._failing_since is None:
            self._failing_since = now
        elif what != self._complaint and now - self._failing_since >= COMPLAIN_SECONDS:
            self._complaint = what
            logger.warning("%s; waiting", what)
