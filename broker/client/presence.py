"""Being known to brokers as a producer: they can ask and tell only whom they have heard of.

A broker asks about open transactions (39), and passes replies on (326), over connections on which a
heartbeat has named a producer group. Which those are dies with a leader; the next one is greeted
as soon as it is found, so that it need not wait for the next heartbeat.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from broker.client.errors import ClientError, refusal
from broker.client.routes import Routes, TopicRoute
from broker.remoting.client import RemotingClient
from broker.remoting.codes import RequestCode, ResponseCode
from broker.remoting.errors import CallError

logger = logging.getLogger("dledger.client")

HEARTBEAT_SECONDS = 30.0


@dataclass(slots=True)
class _Group:
    """A group of brokers that has to know this producer."""

    topic: str
    """One that lies there; its route tells who leads."""
    address: str | None
    greeted_at: float | None = None
    """When the leader at ``address`` answered the latest heartbeat."""


class ProducerPresence:
    """Keeps one producer known. It does nothing until the first :meth:`join`."""

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
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    async def join(self, topic: str, leaders: Mapping[str, str]) -> None:
        """Returns when the leaders, by broker name, know this producer, or have been tried once;
        what failed is tried on. From now on all leaders of these groups will know it.
        """
        if self._task is None:
            self._routes.on_change(self._route_changed)
            self._task = self._loop.create_task(self._run())
        for broker, address in leaders.items():
            if broker not in self._groups:
                self._groups[broker] = _Group(topic, address)
        for broker in leaders:
            if self._groups[broker].greeted_at is None:
                await self._greet(self._groups[broker])
        self._wake.set()

    def broker_at(self, address: str) -> str:
        """The name of the group that the leader at ``address`` leads; empty if none is known."""
        found = (name for name, group in self._groups.items() if group.address == address)
        return next(found, "")

    def lost(self, address: str) -> None:
        """A connection broke, and with it what that broker knew."""
        for group in self._groups.values():
            if group.address == address:
                group.greeted_at = None
                self._wake.set()

    async def close(self) -> None:
        """Brokers that can be reached are told that the producer is gone."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        ext = {"clientID": self._client_id, "producerGroup": self._group}
        goodbyes = [
            self._remoting.invoke(
                group.address, RequestCode.UNREGISTER_CLIENT, ext, timeout=self._request_seconds
            )
            for group in self._groups.values()
            if group.address is not None and group.greeted_at is not None
        ]
        await asyncio.gather(*goodbyes, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            for broker, group in list(self._groups.items()):
                if not self._is_due(group):
                    continue
                if group.address is None or not await self._greet(group):
                    await self._routes.recover(group.topic, broker)
                    self._wake.set()
            self._set_timer()

    def _is_due(self, group: _Group) -> bool:
        last = group.greeted_at
        return last is None or self._loop.time() >= last + HEARTBEAT_SECONDS

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        greeted = [each.greeted_at for each in self._groups.values() if each.greeted_at is not None]
        if greeted:
            self._timer = self._loop.call_at(min(greeted) + HEARTBEAT_SECONDS, self._wake.set)

    async def _greet(self, group: _Group) -> bool:
        address = group.address
        if address is None:
            return False
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
            if answer.code != ResponseCode.SUCCESS:
                raise refusal(address, answer.code, answer.remark)
        except (CallError, ClientError) as error:
            logger.debug("heartbeat to %s: %s", address, error)
            group.greeted_at = None
            return False
        if group.address == address:  # else another one leads by now
            group.greeted_at = self._loop.time()
        return True

    def _route_changed(self, route: TopicRoute) -> None:
        for broker in route.brokers:
            group = self._groups.get(broker)
            if group is not None and group.address != route.leader(broker):
                group.address = route.leader(broker)
                group.greeted_at = None
                self._wake.set()
