"""Leaders that answer nothing, though their connections are open.

A process that dies closes its connections. One whose machine loses its power or network does not,
and neither does one that is paused: only the timeout of the requests would tell, which is seconds.
So a NameServer is asked as soon as a request has waited for long. If another node leads by now,
the connection to the old one is given up, and its requests go the way of any others whose
connection broke.
"""

from __future__ import annotations

import asyncio

from broker.client.route.route_cache import Routes
from broker.client.route.topic_route import TopicRoute
from broker.remoting.client import RemotingClient

LOOK_SECONDS = 0.1
"""A leader is silent if the same request is its oldest at two looks. Who waits for nothing does not
look."""


class SilentLeaders:
    """Watches the brokers to which messages go."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, remoting: RemotingClient, routes: Routes
    ) -> None:
        self._loop = loop
        self._remoting = remoting
        self._routes = routes
        self._asked: dict[str, tuple[str, str]] = {}
        """By address: a topic that was sent there, and the broker group."""
        self._oldest: dict[str, int] = {}
        """By address: the oldest request at the last look."""
        self._silent: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None
        routes.on_change(self._route_changed)

    def sent(self, address: str, topic: str, broker: str) -> None:
        """A message of the topic goes there, because it leads the broker group."""
        if address not in self._asked:
            self._asked[address] = (topic, broker)
            if self._timer is None:
                self._timer = self._loop.call_later(LOOK_SECONDS, self._look)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        for address, (topic, _) in list(self._asked.items()):
            oldest = self._remoting.oldest_request(address)
            if oldest is None:
                self._forget(address)
            elif self._oldest.get(address) == oldest:
                self._silent.add(address)
                # By its address: what fails otherwise is looked up at a pace of its own.
                self._routes.doubt(topic, address)
            else:
                self._oldest[address] = oldest
                self._silent.discard(address)
        if self._asked:
            self._timer = self._loop.call_later(LOOK_SECONDS, self._look)

    def _route_changed(self, route: TopicRoute) -> None:
        for address in list(self._silent):
            topic, broker = self._asked[address]
            leader = route.leader(broker)
            if topic == route.topic and leader is not None and leader != address:
                self._forget(address)
                self._remoting.give_up(address, f"is silent, and {leader} leads now")

    def _forget(self, address: str) -> None:
        self._asked.pop(address, None)
        self._oldest.pop(address, None)
        self._silent.discard(address)
