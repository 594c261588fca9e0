"""Asks the NameServers for a route, one after the other, and wakes the waiters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

from broker.client.errors import (
    BadAnswerError,
    ClientError,
    Failure,
    NameServersUnreachableError,
    TopicNotFoundError,
    check_success,
)
from broker.client.route.topic_route import TopicRoute, decode_route
from broker.remoting.client import RemotingClient
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.remoting.protocol.frame import Frame

NAME_SERVER_SECONDS = 3.0


class RouteWaiters:
    """The waiters for one look-up. A cancelled waiter does not affect the others.

    ``asyncio.shield`` and ``asyncio.wait`` do the same for any future, with three events for each
    waiter instead of one. In an outage all requests wait here, many times. Most of them need a
    leader, and are woken only once there is one.
    """

    __slots__ = ("_for_leader", "_futures", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._futures: list[asyncio.Future[None]] = []
        self._for_leader: dict[str, list[asyncio.Future[None]]] = {}
        """Waiters that need a leader, by the failing broker group."""

    def wait(self) -> asyncio.Future[None]:
        """A future that is done at the end of the look-up."""
        future = self._loop.create_future()
        self._futures.append(future)
        return future

    def wait_for_leader(self, culprit: str) -> asyncio.Future[None]:
        """A future that is done once the look-up ends with a leader, or for good."""
        future = self._loop.create_future()
        self._for_leader.setdefault(culprit, []).append(future)
        return future

    def join(self, others: RouteWaiters) -> None:
        """Ends the wait of ``others`` together with this one."""
        self._futures += others._futures
        for culprit, futures in others._for_leader.items():
            self.wait_on(culprit, futures)

    def wait_on(self, culprit: str, futures: list[asyncio.Future[None]]) -> None:
        """Adds waiters of another topic that need a leader."""
        self._for_leader.setdefault(culprit, []).extend(futures)

    def end(self) -> None:
        """Wakes all waiters."""
        self.end_without_leader()
        for futures in self._for_leader.values():
            _wake(futures)

    def end_without_leader(self) -> dict[str, list[asyncio.Future[None]]]:
        """Wakes the waiters that need no leader; returns the others, by their failing broker
        group."""
        _wake(self._futures)
        left: dict[str, list[asyncio.Future[None]]] = {}
        for culprit, futures in self._for_leader.items():
            waiting = [future for future in futures if not future.done()]
            if waiting:
                left[culprit] = waiting
        return left


def _wake(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)


Answers = dict[str, tuple[bytes, TopicRoute]]
"""The last answer for each topic, decoded: most answers are the same as before."""


class RouteLookup:
    """One look-up of the route of ``topic``. It needs no task: it continues as answers arrive.

    ``ended`` is called once, never before :meth:`begin` returns, and never after :meth:`give_up`.
    """

    __slots__ = (
        "_answers",
        "_causes",
        "_ended",
        "_left",
        "_name_servers",
        "_not_found",
        "_remoting",
        "error",
        "is_given_up",
        "others",
        "route",
        "topic",
        "waiting",
    )

    def __init__(
        self,
        topic: str,
        *,
        remoting: RemotingClient,
        name_servers: list[str],
        answers: Answers,
        waiting: RouteWaiters,
        ended: Callable[[RouteLookup], None],
    ) -> None:
        """A NameServer that does not answer is moved to the end of ``name_servers``."""
        self.topic = topic
        self.waiting = waiting
        self.others: list[tuple[str, Mapping[str, RouteWaiters]]] = []
        """Waiters for the routes of other topics, by topic, with the failing broker group of each
        outage."""
        self.route: TopicRoute | None = None
        """The result, or None."""
        self.error: ClientError | None = None
        """The error, if there is no result."""
        self.is_given_up = False
        self._remoting = remoting
        self._name_servers = name_servers
        self._left = list(name_servers)
        self._answers = answers
        self._ended = ended
        self._causes: dict[str, str] = {}
        self._not_found: TopicNotFoundError | None = None

    def begin(self) -> None:
        """Asks the first NameServer."""
        address = self._left.pop(0)
        self._remoting.call(
            address,
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            {"topic": self.topic, "acceptStandardJsonOnly": "true"},
            (),
            timeout=NAME_SERVER_SECONDS,
            done=partial(self._answered, address),
        )

    def give_up(self) -> None:
        """The client is closed: asks no more, and reports no result."""
        self.is_given_up = True

    def _answered(self, address: str, answer: Frame | None, failure: Failure | None) -> None:
        if self.is_given_up:
            return
        if answer is not None:
            try:
                self.route = self._read(address, answer)
            except TopicNotFoundError as error:
                self._not_found = error  # it may have just started; another NameServer may know
            except ClientError as error:
                failure = error
        if failure is not None:
            self._causes[address] = str(failure)
            # The next look-up must not wait for this NameServer again.
            self._name_servers.remove(address)
            self._name_servers.append(address)
        if self.route is None and self._left:
            self.begin()
            return
        if self.route is None:
            self.error = self._not_found or NameServersUnreachableError(self._causes)
        self._ended(self)

    def _read(self, address: str, answer: Frame) -> TopicRoute:
        topic = self.topic
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            raise TopicNotFoundError(topic)
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise BadAnswerError(address, "is not a NameServer: it does not know routes")
        check_success(address, answer)
        before = self._answers.get(topic)
        if before is not None and before[0] == answer.body:
            return before[1]
        try:
            route = decode_route(topic, answer.body)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadAnswerError(address, f"the route of {topic} cannot be read: {error}") from None
        self._answers[topic] = (bytes(answer.body), route)
        return route
