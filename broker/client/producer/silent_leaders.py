"""Finds leaders that do not answer although their connections are open.

A process that dies closes its connections. A paused process does not, nor does a machine without
power or network. There only the timeout of the requests would show the failure, after seconds. So a
NameServer is asked as soon as a request has waited for long. If another node leads by now, the
connection to the old leader is closed, and its requests are retried as after any broken connection.
"""

from __future__ import annotations

import asyncio

from broker.client.route.route_cache import Routes
from broker.client.route.topic_route import TopicRoute
from broker.remoting.client import RemotingClient

LOOK_SECONDS = 0.1
"""The interval of checks. A leader is silent if it has the same oldest request at two checks.
Without requests there are no checks."""


class SilentLeaders:
    """Checks the leaders to which messages were sent."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, remoting: RemotingClient, routes: Routes
    ) -> None:
        self._loop = loop
        self._remoting = remoting
        self._routes = routes
        self.asked: dict[str, tuple[str, str]] = {}
        """By address: a topic with messages sent there, and the broker group."""
        self._oldest: dict[str, int] = {}
        """By address: the oldest request at the last check."""
        self._silent: dict[str, None] = {}  # in order: their requests are sent again in it
        self._timer: asyncio.TimerHandle | None = None
        routes.on_change(self._route_changed)

    def sent(self, address: str, topic: str, broker: str) -> None:
        """A message of the topic is sent to the leader of the broker group. To be called where it
        is not in ``asked``."""
        self.asked[address] = (topic, broker)
        if self._timer is None:
            self._timer = self._loop.call_later(LOOK_SECONDS, self._look)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        for address, (topic, _) in list(self.asked.items()):
            oldest = self._remoting.oldest_request(address)
            if oldest is None:
                self._forget(address)
            elif self._oldest.get(address) == oldest:
                self._silent[address] = None
                # With its address as the culprit: other failures are looked up at their own pace.
                self._routes.doubt(topic, address)
            else:
                self._oldest[address] = oldest
                self._silent.pop(address, None)
        if self.asked:
            self._timer = self._loop.call_later(LOOK_SECONDS, self._look)

    def _route_changed(self, route: TopicRoute) -> None:
        for address in list(self._silent):
            topic, broker = self.asked[address]
            leader = route.leader(broker)
            if topic == route.topic and leader is not None and leader != address:
                self._forget(address)
                self._remoting.give_up(address, f"is silent, and {leader} leads now")

    def _forget(self, address: str) -> None:
        self.asked.pop(address, None)
        self._oldest.pop(address, None)
        self._silent.pop(address, None)
