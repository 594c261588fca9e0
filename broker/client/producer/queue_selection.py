"""Selects the queue of a message: round robin over the available brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from random import Random
from typing import NamedTuple

from broker.client.errors import NoLeaderError, NoQueueError, TopicNotFoundError
from broker.client.message import MessageQueue
from broker.client.producer.latency_faults import LatencyFaults
from broker.client.producer.send_encoding import AUTO_CREATE_TOPIC
from broker.client.route.route_cache import Routes
from broker.client.route.topic_route import TopicRoute
from store.message.tags_code import tags_code


def queue_index(key: str, count: int) -> int:
    """The index of the queue for ``key`` among ``count`` queues, so that messages of one key are in
    order.

    As ``SelectMessageQueueByHash``: the key's Java hash modulo ``count``, as an absolute value.
    """
    return abs(tags_code(key)) % count


class Target(NamedTuple):
    """A queue and the address of its leader."""

    queue: MessageQueue
    address: str


class _Rotation:
    """The queues of one route that have a leader, and the next queue in turn."""

    __slots__ = ("addresses", "next", "route", "targets")

    def __init__(self, route: TopicRoute, first: int) -> None:
        self.route = route
        self.addresses = route.leaders()
        self.targets = [
            Target(queue, self.addresses[queue.broker])
            for queue in route.write_queues
            if queue.broker in self.addresses
        ]
        self.next = first


class QueueSelector:
    """Selects queues for one producer."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        routes: Routes,
        rng: Random,
        default_queues: int,
        faults: LatencyFaults | None,
    ) -> None:
        self._loop = loop
        self._routes = routes
        self._rng = rng
        self._default_queues = default_queues
        self._faults = faults
        self._rotations: dict[str, _Rotation] = {}
        self._provisional: dict[str, TopicRoute] = {}
        """Routes of topics that the first message to them will create."""

    def at_once(self, topic: str, pinned: MessageQueue | None) -> Target | None:
        """A target by the known routes, or None."""
        route = self._routes.cached(topic)
        if route is None:
            return None
        rotation = self._rotations.get(topic)
        if rotation is None or rotation.route is not route:
            rotation = self._rotation(route)
        if pinned is not None:
            address = rotation.addresses.get(pinned.broker)
            return None if address is None else Target(pinned, address)
        targets = rotation.targets
        if not targets:
            return None
        if self._faults is not None:
            return self._take_turn(rotation, ())
        turn = rotation.next
        rotation.next = turn + 1
        return targets[turn % len(targets)]

    async def search(
        self, topic: str, pinned: MessageQueue | None, avoid: Collection[str]
    ) -> Target:
        """A target; asks a NameServer if necessary. Brokers to ``avoid`` are used only if there are
        no others. Raises a :class:`~broker.client.errors.ClientError` if there is none.
        """
        rotation = self._rotation(await self.route(topic))
        if pinned is not None:
            address = rotation.addresses.get(pinned.broker)
            if address is None:
                raise NoLeaderError(pinned.broker)
            return Target(pinned, address)
        if not rotation.route.write_queues:
            raise NoQueueError(topic)
        if not rotation.targets:
            raise NoLeaderError(rotation.route.write_queues[0].broker)
        return self._take_turn(rotation, avoid)

    async def route(self, topic: str) -> TopicRoute:
        """The topic's route; for a topic that a message creates, its future route."""
        route = self._routes.cached(topic)
        if route is not None:
            return route
        try:
            return await self._routes.refresh(topic)
        except TopicNotFoundError as error:
            return self._provisional.get(topic) or await self._promise(error)

    def forget_promise(self, topic: str) -> None:
        """Forgets the future route after a send: the topic exists now, or the route may be
        outdated."""
        if self._provisional:
            self._provisional.pop(topic, None)

    async def _promise(self, missing: TopicNotFoundError) -> TopicRoute:
        try:
            template = await self._routes.refresh(AUTO_CREATE_TOPIC)
        except TopicNotFoundError:
            raise missing from None
        topic = missing.topic
        queues = tuple(
            queue._replace(topic=topic)
            for queue in template.write_queues
            if queue.queue_id < self._default_queues
        )
        route = TopicRoute(topic, queues, queues, template.brokers)
        self._provisional[topic] = route
        return route

    def _rotation(self, route: TopicRoute) -> _Rotation:
        rotation = self._rotations.get(route.topic)
        if rotation is None or rotation.route is not route:
            # Clients that start together must not all begin with the same queue.
            first = self._rng.randrange(1 << 16) if rotation is None else rotation.next
            rotation = self._rotations[route.topic] = _Rotation(route, first)
        return rotation

    def _take_turn(self, rotation: _Rotation, avoid: Collection[str]) -> Target:
        targets = rotation.targets
        count = len(targets)
        turn = rotation.next
        rotation.next = turn + 1
        if not avoid and self._faults is None:
            return targets[turn % count]
        candidates = [targets[(turn + step) % count] for step in range(count)]
        candidates = [each for each in candidates if each.queue.broker not in avoid] or candidates
        if self._faults is None:
            return candidates[0]
        now_ms = int(self._loop.time() * 1000)
        for target in candidates:
            if self._faults.available(target.queue.broker, now_ms):
                return target
        best = self._faults.least_bad([target.queue.broker for target in candidates])
        return next(target for target in candidates if target.queue.broker == best)
