"""Routes: the broker groups of a topic, their leaders, and how to wait for a leader.

Routes come from any of the NameServers (request 105); all have the same. They are cached, and
looked up again every 30 s, and at once when a request failed or a follower forwarded it. After a
failure requests wait here. The first look-up starts at once. Later ones start after a tenth of the
time that the outage has lasted, with bounds and jitter. So a new leader is found within an eighth
of the time that its election took. A long outage costs two look-ups a second for any number of
requests and topics. The leader of a broker group is the same in all routes. So topics take turns:
one is looked up, and others only if its answer differs from their routes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random

from broker.client.errors import (
    ClosedError,
    NameServersUnreachableError,
    NoLeaderError,
    TopicNotFoundError,
)
from broker.client.message import MessageQueue
from broker.client.route.route_lookup import Answers, RouteLookup, RouteWaiters
from broker.client.route.topic_route import TopicRoute
from broker.remoting.client import RemotingClient
from dledger.periodic import Periodic

logger = logging.getLogger("dledger.client")

POLL_SECONDS = 30.0
BACKOFF_MIN_SECONDS = 0.01
BACKOFF_MAX_SECONDS = 0.5
BACKOFF_DIVISOR = 10
OUTAGE_OVER_SECONDS = 0.75
"""After so many seconds without a failure, the next failure begins a new outage, unless requests
still wait in the old one. It is a little more than the longest wait within one outage. So the wait
for a leader that dies soon after its election starts from zero."""

LEAVE_SECONDS = 1.0
"""How long after the last change of a route connections to brokers that lead no more are closed. By
then a new leader knows this client, so replies and check-backs reach it there."""


ChangeListener = Callable[[TopicRoute], None]


class _Outage:
    """A failing broker group: the times of the first and the last failure, and the waiters for the
    next look-ups, by topic."""

    __slots__ = ("_asked", "_turn", "culprit", "seen", "since", "waiting")

    def __init__(self, culprit: str, since: float) -> None:
        self.culprit = culprit
        self.since = since
        self.seen = since
        self._asked: dict[str, int] = {}
        self._turn = 0
        self.waiting: dict[str, RouteWaiters] = {}

    def is_over(self, now: float) -> bool:
        """Whether the outage is over. It is not while requests wait in it, because a close finds
        them only here."""
        return not self.waiting and now - self.seen > OUTAGE_OVER_SECONDS

    def next_topic(self, topics: Iterable[str]) -> str:
        """The next topic in turn, so that errors of a single topic show too."""
        topic = min(topics, key=lambda topic: self._asked.get(topic, 0))
        self._turn += 1
        self._asked[topic] = self._turn
        return topic


class Routes:
    """The route cache of one client. It is used on the loop's thread only."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        remoting: RemotingClient,
        name_servers: Sequence[str],
        rng: Random,
    ) -> None:
        if not name_servers:
            raise ValueError("no NameServer is given")
        self._loop = loop
        self._remoting = remoting
        self._name_servers = list(name_servers)
        self._rng = rng
        self._routes: dict[str, TopicRoute] = {}
        self._answers: Answers = {}
        self._first_queues: dict[str, frozenset[MessageQueue]] = {}
        """By topic: the queues of the first answer; none if there was no such topic."""
        self._lookups: dict[str, RouteLookup] = {}
        self._missing: dict[str, float] = {}
        """For topics without a route: the time at which no NameServer knew the topic."""
        self._outages: dict[str, _Outage] = {}
        self._listeners: list[ChangeListener] = []
        self._polls = Periodic(loop, POLL_SECONDS, self._poll)
        self._leaders: dict[str, str] = {}
        """By broker group: the leader of the route that changed last. Other routes may be older."""
        self._led: dict[str, str] = {}
        """By address: the broker group that was led from there."""
        self._leaving: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def name_servers(self) -> list[str]:
        return list(self._name_servers)

    def start(self) -> None:
        """Begins to look known topics up again every ``POLL_SECONDS``."""
        self._polls.start()

    def close(self) -> None:
        """Ends all waits with :class:`ClosedError`."""
        self._closed = True
        self._polls.stop()
        if self._leaving is not None:
            self._leaving.cancel()
        for look_up in self._lookups.values():
            look_up.give_up()
            look_up.waiting.end()
            for _, others in look_up.others:
                for waiting in others.values():
                    waiting.end()
        for outage in self._outages.values():
            for waiting in outage.waiting.values():
                waiting.end()

    def on_change(self, listener: ChangeListener) -> None:
        """Calls ``listener`` with each changed route."""
        self._listeners.append(listener)

    def cached(self, topic: str) -> TopicRoute | None:
        return self._routes.get(topic)

    def is_new(self, queue: MessageQueue) -> bool:
        """Whether the queue was not there when a NameServer was first asked for its topic."""
        return queue not in self._first_queues.get(queue.topic, ())

    async def get(self, topic: str) -> TopicRoute:
        """The known route, or the result of :meth:`refresh`."""
        return self._routes.get(topic) or await self.refresh(topic)

    async def refresh(self, topic: str) -> TopicRoute:
        """Asks a NameServer. Concurrent callers share the answer, also the answer that there is no
        such topic.

        Raises :class:`TopicNotFoundError` or another :class:`ClientError`.
        """
        if self._closed:
            raise _closed()
        if self._loop.time() < self._missing.get(topic, -1.0) + BACKOFF_MIN_SECONDS:
            raise TopicNotFoundError(topic)
        look_up = self._begin_look_up(topic)
        await look_up.waiting.wait()
        if look_up.is_given_up:
            raise _closed()
        if look_up.route is None:
            raise look_up.error or _closed()
        return look_up.route

    async def recover(self, topic: str, culprit: str, *, until_led: bool = False) -> None:
        """Waits as a failed request must, then looks the route up again.

        ``culprit``: the broker that failed (or the topic, if no broker was found yet). Requests
        that fail for the same reason wait together. If no NameServer has a newer route, the known
        route stays. With ``until_led`` the wait lasts while the route has queues but no leader,
        because the request would only fail again. Raises only :class:`ClosedError`.
        """
        if self._closed:
            raise _closed()
        waiting = self._next_look_up(topic, culprit)
        await (waiting.wait_for_leader(culprit) if until_led else waiting.wait())
        if self._closed:
            raise _closed()

    def doubt(self, topic: str, broker: str) -> None:
        """The leader in the route leads no more: the route is looked up, as after a failure."""
        if not self._closed:
            self._next_look_up(topic, broker)

    def _next_look_up(self, topic: str, culprit: str) -> RouteWaiters:
        """The waiters for the next look-up after a failure."""
        now = self._loop.time()
        outage = self._outages.get(culprit)
        if outage is None or outage.is_over(now):
            self._outages[culprit] = _Outage(culprit, now)
            return self._begin_look_up(topic).waiting
        outage.seen = now
        return self._back_off(outage, topic)

    def leader(self, queue: MessageQueue) -> str:
        """The address of the queue's leader. Raises :class:`NoLeaderError`."""
        route = self._routes.get(queue.topic)
        address = None if route is None else route.leader(queue.broker)
        if address is None:
            raise NoLeaderError(queue.broker)
        return address

    def _back_off(self, outage: _Outage, topic: str) -> RouteWaiters:
        if not outage.waiting:
            lasted = self._loop.time() - outage.since
            seconds = min(max(lasted / BACKOFF_DIVISOR, BACKOFF_MIN_SECONDS), BACKOFF_MAX_SECONDS)
            seconds *= self._rng.uniform(0.75, 1.25)
            self._loop.call_later(seconds, self._end_wait, outage)
        waiting = outage.waiting.get(topic)
        if waiting is None:
            waiting = outage.waiting[topic] = RouteWaiters(self._loop)
        return waiting

    def _end_wait(self, outage: _Outage) -> None:
        if self._closed:  # close() ends all waits
            return
        ended, outage.waiting = outage.waiting, {}
        topic = outage.next_topic(ended)
        look_up = self._begin_look_up(topic)
        look_up.waiting.join(ended.pop(topic))
        if ended:
            look_up.others.append((outage.culprit, ended))

    def _poll(self) -> None:
        for topic in self._routes:
            self._begin_look_up(topic)

    def _begin_look_up(self, topic: str) -> RouteLookup:
        look_up = self._lookups.get(topic)
        if look_up is None:
            look_up = self._lookups[topic] = RouteLookup(
                topic,
                remoting=self._remoting,
                name_servers=self._name_servers,
                answers=self._answers,
                waiting=RouteWaiters(self._loop),
                ended=self._looked_up,
            )
            look_up.begin()
        return look_up

    def _looked_up(self, look_up: RouteLookup) -> None:
        topic = look_up.topic
        del self._lookups[topic]
        if look_up.route is not None:
            self._missing.pop(topic, None)
            if topic not in self._first_queues:
                self._first_queues[topic] = frozenset(look_up.route.read_queues)
            self._take(look_up.route)
        else:
            logger.debug("route of %s: %s", topic, look_up.error)
            if isinstance(look_up.error, TopicNotFoundError):
                self._first_queues.setdefault(topic, frozenset())
                self._forget_leaders(topic)
                if topic not in self._routes:
                    self._missing[topic] = self._loop.time()
        self._end(topic, look_up.waiting)
        for culprit, others in look_up.others:
            self._pass_on(look_up, culprit, others)

    def _pass_on(
        self, look_up: RouteLookup, culprit: str, others: Mapping[str, RouteWaiters]
    ) -> None:
        """Passes the result of a look-up to waiters for other topics. They go on if their routes
        have the same leader of the failing broker group; otherwise their topic is looked up."""
        vain = isinstance(look_up.error, NameServersUnreachableError)
        told = self._routes.get(look_up.topic)
        for other, waiting in others.items():
            known = self._routes.get(other)
            if vain or (told and known and told.brokers.get(culprit) == known.brokers.get(culprit)):
                self._end(other, waiting)
            else:
                self._begin_look_up(other).waiting.join(waiting)

    def _end(self, topic: str, waiting: RouteWaiters) -> None:
        """Ends the wait for a look-up. If it found no leader, waiters that need one wait for the
        next."""
        route = self._routes.get(topic)
        if route is None or route.is_led:
            waiting.end()
            return
        for culprit, futures in waiting.end_without_leader().items():
            self._next_look_up(topic, culprit).wait_on(culprit, futures)

    def _take(self, route: TopicRoute) -> None:
        known = self._routes.get(route.topic)
        if route != known:
            self._routes[route.topic] = route
            self._changed(route)

    def _forget_leaders(self, topic: str) -> None:
        """Removes the leaders from the route of a topic that no NameServer knows. NameServers
        forget a topic if all its brokers are down, but its queues still exist."""
        known = self._routes.get(topic)
        if known is not None and known.brokers:
            route = known._replace(brokers={})
            self._routes[topic] = route
            self._changed(route)

    def _changed(self, route: TopicRoute) -> None:
        for listener in self._listeners:
            listener(route)
        self._leaders.update(route.leaders())
        for broker, address in route.leaders().items():
            self._led[address] = broker
        self._leave_later()

    def _leave_later(self) -> None:
        if self._leaving is not None:
            self._leaving.cancel()
        if not self._closed:
            self._leaving = self._loop.call_later(LEAVE_SECONDS, self._leave)

    def _leave(self) -> None:
        """Closes connections to brokers that lead no more. A broker that stops waits for that."""
        led = {broker for route in self._routes.values() for broker in route.leaders()}
        kept = {self._leaders[broker] for broker in led}
        # The old leader may also be the next.
        kept.update(address for address, broker in self._led.items() if broker not in led)
        if not self._remoting.leave_others(kept.union(self._name_servers)):
            self._leave_later()


def _closed() -> ClosedError:
    return ClosedError("the client was closed")
