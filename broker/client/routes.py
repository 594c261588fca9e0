"""Routes: which broker groups have a topic, who leads them, and how to wait until one does.

Routes come from a NameServer (request 105), any of those given; all know the same. They are kept,
looked up again every 30 s, and at once when a request fails. After a failure requests wait here:
the first look-up comes at once, the next ones after a twelfth of the time that the outage has
lasted, with bounds and jitter. So a new leader is found within a tenth of the time that its
election took, and a long outage costs two look-ups a second however many requests wait, and of
however many topics: who leads the broker is the same in the routes of all, so they are asked for in
turn, and the rest only where the answer differs from what their routes say of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from random import Random
from typing import NamedTuple

from broker.client.errors import (
    BadAnswerError,
    ClientError,
    ClosedError,
    NameServersUnreachableError,
    NoLeaderError,
    TopicNotFoundError,
    refusal,
)
from broker.client.message import MessageQueue
from broker.remoting.client import RemotingClient
from broker.remoting.codes import RequestCode, ResponseCode
from broker.remoting.errors import CallError
from broker.remoting.javajson import decode_json

logger = logging.getLogger("dledger.client")

POLL_SECONDS = 30.0
BACKOFF_MIN_SECONDS = 0.02
BACKOFF_MAX_SECONDS = 0.5
BACKOFF_DIVISOR = 12
OUTAGE_OVER_SECONDS = 0.75
"""Nothing has failed for so long: the next failure begins a new outage, unless some still wait in
this one. It is more than the longest wait within one, and little more: a leader that dies soon
after its election is not waited for as long as its predecessor was missed."""

NAME_SERVER_SECONDS = 3.0
LEADER_ID = 0
PERM_READ = 4
PERM_WRITE = 2


class TopicRoute(NamedTuple):
    """A topic's queues, sorted, and the addresses of their brokers by name and id."""

    topic: str
    write_queues: tuple[MessageQueue, ...]
    read_queues: tuple[MessageQueue, ...]
    brokers: Mapping[str, Mapping[int, str]]

    def leader(self, broker: str) -> str | None:
        """The address of the group's leader, None while there is none."""
        return self.brokers.get(broker, {}).get(LEADER_ID)

    def leaders(self) -> dict[str, str]:
        """The leaders there are, by broker name."""
        return {
            broker: addresses[LEADER_ID]
            for broker, addresses in self.brokers.items()
            if LEADER_ID in addresses
        }


ChangeListener = Callable[[TopicRoute], None]


class _Waiting:
    """Those who wait for one thing, each by itself: one that gives up takes nothing from others.

    As ``asyncio.shield`` and ``asyncio.wait`` do for any future, with one event for each who waits
    instead of three: in an outage all that a client has to do waits here, again and again.
    """

    __slots__ = ("_futures", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._futures: list[asyncio.Future[None]] = []

    def wait(self) -> asyncio.Future[None]:
        future = self._loop.create_future()
        self._futures.append(future)
        return future

    def join(self, others: _Waiting) -> None:
        """What they wait for is this too from now on."""
        self._futures += others._futures

    def end(self) -> None:
        for future in self._futures:
            if not future.done():
                future.set_result(None)


class _LookUp(NamedTuple):
    """A NameServer is being asked, and who waits for the answer."""

    task: asyncio.Task[TopicRoute]
    waiting: _Waiting


class _Outage:
    """A broker group that fails: since when, when last, and who waits there, by topic, for the
    look-ups after the present wait."""

    __slots__ = ("_asked", "_turn", "culprit", "seen", "since", "waiting")

    def __init__(self, culprit: str, since: float) -> None:
        self.culprit = culprit
        self.since = since
        self.seen = since
        self._asked: dict[str, int] = {}
        self._turn = 0
        self.waiting: dict[str, _Waiting] = {}

    def is_over(self, now: float) -> bool:
        """Not while anybody waits in it: only here are they found when the client is closed."""
        return not self.waiting and now - self.seen > OUTAGE_OVER_SECONDS

    def next_topic(self, topics: Iterable[str]) -> str:
        """The one whose turn it is: what is wrong with one topic alone is found out too."""
        topic = min(topics, key=lambda topic: self._asked.get(topic, 0))
        self._turn += 1
        self._asked[topic] = self._turn
        return topic


class Routes:
    """The route cache of one client. Everything happens on the loop's thread."""

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
        self._answers: dict[str, tuple[bytes, TopicRoute]] = {}
        """The last answer for each topic and what it says: most say nothing new."""
        self._lookups: dict[str, _LookUp] = {}
        self._outages: dict[str, _Outage] = {}
        self._listeners: list[ChangeListener] = []
        self._poll_timer: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def name_servers(self) -> list[str]:
        return list(self._name_servers)

    def start(self) -> None:
        """Begins to look known topics up again every ``POLL_SECONDS``."""
        self._poll_timer = self._loop.call_later(POLL_SECONDS, self._poll)

    async def close(self) -> None:
        """Who waits here for a route, or for the end of an outage, gets :class:`ClosedError`."""
        self._closed = True
        if self._poll_timer is not None:
            self._poll_timer.cancel()
        tasks = [look_up.task for look_up in self._lookups.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for outage in self._outages.values():
            for waiting in outage.waiting.values():
                waiting.end()

    def on_change(self, listener: ChangeListener) -> None:
        """Calls back with every route that differs from the one known before."""
        self._listeners.append(listener)

    def cached(self, topic: str) -> TopicRoute | None:
        return self._routes.get(topic)

    def put(self, route: TopicRoute) -> None:
        """Takes in a route that no NameServer gave (a topic that sending to it will create)."""
        self._routes[route.topic] = route

    async def get(self, topic: str) -> TopicRoute:
        """The known route, or the one that :meth:`refresh` finds."""
        return self._routes.get(topic) or await self.refresh(topic)

    async def refresh(self, topic: str) -> TopicRoute:
        """Asks a NameServer; callers at the same time share the answer.

        Raises :class:`TopicNotFoundError` or another :class:`ClientError`.
        """
        if self._closed:
            raise _closed()
        look_up = self._begin_look_up(topic)
        await look_up.waiting.wait()
        if look_up.task.cancelled():  # by nobody but close()
            raise _closed()
        return look_up.task.result()

    async def recover(self, topic: str, culprit: str) -> None:
        """Waits as long as a request that failed should, then looks the route up again.

        ``culprit``: the broker (or the topic, where none was found yet) that failed; what fails
        for the same reason waits together. Where no NameServer knows better, the known route
        stays. Raises :class:`ClosedError` alone.
        """
        if self._closed:
            raise _closed()
        now = self._loop.time()
        outage = self._outages.get(culprit)
        if outage is None or outage.is_over(now):
            self._outages[culprit] = _Outage(culprit, now)
            await self._begin_look_up(topic).waiting.wait()
        else:
            outage.seen = now
            await self._back_off(outage, topic)
        if self._closed:
            raise _closed()

    def leader(self, queue: MessageQueue) -> str:
        """The address to ask about the queue. Raises :class:`NoLeaderError`."""
        route = self._routes.get(queue.topic)
        address = None if route is None else route.leader(queue.broker)
        if address is None:
            raise NoLeaderError(queue.broker)
        return address

    def _back_off(self, outage: _Outage, topic: str) -> asyncio.Future[None]:
        if not outage.waiting:
            lasted = self._loop.time() - outage.since
            seconds = min(max(lasted / BACKOFF_DIVISOR, BACKOFF_MIN_SECONDS), BACKOFF_MAX_SECONDS)
            seconds *= self._rng.uniform(0.75, 1.25)
            self._loop.call_later(seconds, self._end_wait, outage)
        waiting = outage.waiting.get(topic)
        if waiting is None:
            waiting = outage.waiting[topic] = _Waiting(self._loop)
        return waiting.wait()

    def _end_wait(self, outage: _Outage) -> None:
        if self._closed:  # and close() tells those who wait here, or has told them
            return
        ended, outage.waiting = outage.waiting, {}
        topic = outage.next_topic(ended)
        look_up = self._begin_look_up(topic)
        look_up.waiting.join(ended.pop(topic))
        if ended:
            look_up.task.add_done_callback(partial(self._pass_on, outage.culprit, topic, ended))

    def _pass_on(
        self,
        culprit: str,
        topic: str,
        others: Mapping[str, _Waiting],
        task: asyncio.Task[TopicRoute],
    ) -> None:
        """A topic was looked up: who waits for the others goes on, or for a look-up of their own
        where that says something else of the culprit than their routes do."""
        vain = self._closed or isinstance(task.exception(), NameServersUnreachableError)
        told = self._routes.get(topic)
        for other, waiting in others.items():
            known = self._routes.get(other)
            if vain or (told and known and told.brokers.get(culprit) == known.brokers.get(culprit)):
                waiting.end()
            else:
                self._begin_look_up(other).waiting.join(waiting)

    def _poll(self) -> None:
        for topic in self._routes:
            self._begin_look_up(topic)
        self._poll_timer = self._loop.call_later(POLL_SECONDS, self._poll)

    def _begin_look_up(self, topic: str) -> _LookUp:
        look_up = self._lookups.get(topic)
        if look_up is None:
            task = self._loop.create_task(self._look_up(topic))
            look_up = self._lookups[topic] = _LookUp(task, _Waiting(self._loop))
            task.add_done_callback(lambda done: self._looked_up(topic, done))
        return look_up

    def _looked_up(self, topic: str, task: asyncio.Task[TopicRoute]) -> None:
        self._lookups.pop(topic).waiting.end()
        error = None if task.cancelled() else task.exception()
        if isinstance(error, ClientError):
            logger.debug("route of %s: %s", topic, error)
        elif error is not None:
            raise error

    async def _look_up(self, topic: str) -> TopicRoute:
        causes: dict[str, str] = {}
        not_found: TopicNotFoundError | None = None
        for address in self.name_servers:
            try:
                route = await self._ask(address, topic)
            except TopicNotFoundError as error:
                not_found = error  # it may have been started only now; another one may know
                continue
            except (CallError, ClientError) as error:
                causes[address] = str(error)
                # The next look-up must not wait for this one again.
                self._name_servers.remove(address)
                self._name_servers.append(address)
                continue
            self._take(route)
            return route
        if not_found is not None:
            self._forget_leaders(topic)
            raise not_found
        raise NameServersUnreachableError(causes)

    async def _ask(self, address: str, topic: str) -> TopicRoute:
        answer = await self._remoting.invoke(
            address,
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            {"topic": topic, "acceptStandardJsonOnly": "true"},
            timeout=NAME_SERVER_SECONDS,
        )
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            raise TopicNotFoundError(topic)
        if answer.code != ResponseCode.SUCCESS:
            raise refusal(address, answer.code, answer.remark)
        before = self._answers.get(topic)
        if before is not None and before[0] == answer.body:
            return before[1]
        try:
            route = decode_route(topic, answer.body)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadAnswerError(address, f"the route of {topic} cannot be read: {error}") from None
        self._answers[topic] = (bytes(answer.body), route)
        return route

    def _take(self, route: TopicRoute) -> None:
        known = self._routes.get(route.topic)
        if route != known:
            self._routes[route.topic] = route
            self._changed(route)

    def _forget_leaders(self, topic: str) -> None:
        """A NameServer forgets a topic whose brokers are all down; its queues are still there."""
        known = self._routes.get(topic)
        if known is not None and known.brokers:
            route = known._replace(brokers={})
            self._routes[topic] = route
            self._changed(route)

    def _changed(self, route: TopicRoute) -> None:
        for listener in self._listeners:
            listener(route)


def _closed() -> ClosedError:
    return ClosedError("the client was closed")


def decode_route(topic: str, body: bytes) -> TopicRoute:
    """``TopicRouteData`` as a route; integer keys may be bare.

    Raises ``ValueError``, ``KeyError``, ``TypeError`` or ``AttributeError`` where it is none.
    """
    document = decode_json(body)
    brokers = {
        str(data["brokerName"]): {
            int(broker_id): str(address) for broker_id, address in data["brokerAddrs"].items()
        }
        for data in document["brokerDatas"]
    }
    write_queues: list[MessageQueue] = []
    read_queues: list[MessageQueue] = []
    for data in document["queueDatas"]:
        broker = str(data["brokerName"])
        if data["perm"] & PERM_WRITE:
            write_queues += _queues(topic, broker, data["writeQueueNums"])
        if data["perm"] & PERM_READ:
            read_queues += _queues(topic, broker, data["readQueueNums"])
    return TopicRoute(topic, tuple(sorted(write_queues)), tuple(sorted(read_queues)), brokers)


def _queues(topic: str, broker: str, count: int) -> list[MessageQueue]:
    return [MessageQueue(topic, broker, queue_id) for queue_id in range(count)]


def parse_name_servers(text: str) -> list[str]:
    """``host:port`` of each NameServer, separated by semicolons as RocketMQ writes them."""
    addresses = [address.strip() for address in text.replace(",", ";").split(";")]
    return [address for address in addresses if address]
