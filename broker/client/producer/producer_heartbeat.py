"""The producer's heartbeats: a broker can call only producers that it knows.

A broker sends check-backs (39) and replies (326) over connections with a heartbeat of the producer
group. A new leader does not know these connections. So it gets a heartbeat as soon as it is found,
not only at the next interval.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import orjson

from broker.client.errors import ClientError, ClosedError, check_success
from broker.client.route.route_cache import Routes
from broker.client.route.topic_route import TopicRoute
from broker.remoting.client import RemotingClient
from broker.remoting.protocol.codes import RequestCode
from broker.remoting.protocol.errors import CallError

logger = logging.getLogger("dledger.client")

HEARTBEAT_SECONDS = 30.0
"""The pause between heartbeats to a leader, and between look-ups of a broker group without a
leader."""


@dataclass(slots=True)
class _Group:
    """A broker group that must know this producer."""

    topic: str
    """A topic of the group; its route has the leader."""
    address: str | None
    heartbeat_sent: bool = False
    """Whether the leader at ``address`` answered the latest heartbeat."""
    failing_since: float | None = None
    """The time of the first failure in the present series."""
    tried: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the leader was tried, or if earlier tries failed lately."""
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    """Set if a heartbeat must be sent at once."""


class ProducerHeartbeats:
    """Sends the heartbeats of one producer, from the first :meth:`meet` on."""

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        remoting: RemotingClient,
        routes: Routes,
        group: str,
        client_id: str,
        request_seconds: float,
    ) -> None:
        self._loop = loop
        self._remoting = remoting
        self._routes = routes
        self._group = group
        self._client_id = client_id
        self._request_seconds = request_seconds
        self._groups: dict[str, _Group] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._closed = False

    def meet(self, topic: str, leaders: Mapping[str, str]) -> None:
        """From now on the leaders of these broker groups get heartbeats; ``leaders`` has the
        present ones, by broker name. Each group has a task of its own, so a host that does not
        answer delays no other group. Raises :class:`ClosedError`.
        """
        if self._closed:
            raise ClosedError("the producer was closed")
        if not self._tasks:
            self._routes.on_change(self._route_changed)
        for broker, address in leaders.items():
            group = self._groups.get(broker)
            if group is None:
                group = self._groups[broker] = _Group(topic, address)
                self._tasks.append(self._loop.create_task(self._keep(broker, group)))
            elif group.failing_since is not None:
                group.wake.set()

    async def join(self, topic: str, leaders: Mapping[str, str], seconds: float) -> None:
        """As :meth:`meet`. Returns once the leaders know this producer or were tried once, at most
        after ``seconds``. It does not wait for leaders that failed just now.
        """
        self.meet(topic, leaders)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                for broker in leaders:
                    await self._groups[broker].tried.wait()

    def broker_at(self, address: str) -> str:
        """The name of the broker group whose leader is at ``address``; empty if unknown."""
        found = (name for name, group in self._groups.items() if group.address == address)
        return next(found, "")

    def lost(self, address: str) -> None:
        """A connection broke, so the broker has forgotten this producer."""
        for group in self._groups.values():
            if group.address == address and group.heartbeat_sent:
                self._forget_heartbeat(group)

    async def close(self) -> None:
        """Tells reachable brokers that the producer leaves."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        ext = {"clientID": self._client_id, "producerGroup": self._group}
        goodbyes = [
            self._remoting.invoke(
                group.address, RequestCode.UNREGISTER_CLIENT, ext, timeout=self._request_seconds
            )
            for group in self._groups.values()
            if group.address is not None and group.heartbeat_sent
        ]
        await asyncio.gather(*goodbyes, return_exceptions=True)

    async def _keep(self, broker: str, group: _Group) -> None:
        while True:
            group.wake.clear()
            known = await self._send_heartbeat(group)
            group.tried.set()
            if not known:
                await self._routes.recover(group.topic, broker)
                if not self._is_given_up(group):
                    continue
            with suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT_SECONDS):
                    await group.wake.wait()

    def _is_given_up(self, group: _Group) -> bool:
        """Whether the group may be gone for good. A new route, or a new send, would start it
        again."""
        since = group.failing_since
        return since is not None and self._loop.time() >= since + HEARTBEAT_SECONDS

    def _forget_heartbeat(self, group: _Group) -> None:
        group.heartbeat_sent = False
        if group.failing_since is None:
            group.tried.clear()
        group.wake.set()

    async def _send_heartbeat(self, group: _Group) -> bool:
        address = group.address
        if address is None or not await self._beat(address):
            group.heartbeat_sent = False
            if group.failing_since is None:
                group.failing_since = self._loop.time()
            return False
        group.failing_since = None
        if group.address == address:  # otherwise another node leads by now
            group.heartbeat_sent = True
        return True

    async def _beat(self, address: str) -> bool:
        body = orjson.dumps(
            {
                "clientID": self._client_id,
                "consumerDataSet": [],
                "producerDataSet": [{"groupName": self._group}],
            }
        )
        try:
            answer = await self._remoting.invoke(
                address, RequestCode.HEART_BEAT, {}, (body,), timeout=self._request_seconds
            )
            check_success(address, answer)
        except (CallError, ClientError) as error:
            logger.debug("heartbeat to %s: %s", address, error)
            return False
        return True

    def _route_changed(self, route: TopicRoute) -> None:
        for broker in route.brokers:
            group = self._groups.get(broker)
            if group is not None and group.address != route.leader(broker):
                group.address = route.leader(broker)
                self._forget_heartbeat(group)
