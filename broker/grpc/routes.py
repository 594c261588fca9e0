"""Routes of topics: those of this broker group by its own state, those of other groups by a
NameServer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from broker.config.setting_checks import ConfigError
from broker.context import BrokerContext
from broker.errors import unknown_topic
from broker.limits import GRPC, STATE
from broker.remoting.client import RemotingClient
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.remoting.protocol.errors import CallError
from broker.remoting.protocol.java_json import decode_json
from broker.security.credentials import ClientSecurity
from broker.topics_and_groups import (
    AUTO_CREATE_TOPIC,
    PERM_INHERIT,
    TopicConfig,
    check_topic_name,
    is_reserved,
)
from dledger.wire.endpoint import Endpoint

log = logging.getLogger(__name__)

GONE_SECONDS = 40.0
"""Pace: how long a member that is back stays out of routes. Clients ask for routes every 30 s."""

USUAL_QUEUES = 4
"""The queues of a topic that its first message creates."""


class TopicRoute(NamedTuple):
    """The queues of a topic in one broker group, and the endpoints of that group."""

    group: str
    topic: TopicConfig
    endpoints: tuple[Endpoint, ...]


class Routes:
    """Finds routes, for one broker."""

    def __init__(self, context: BrokerContext, security: ClientSecurity) -> None:
        self._context = context
        self._client = RemotingClient(context.loop, security=security)
        self._name_servers = [*context.config.namesrv]
        """If one does not answer, it becomes the last of them."""
        self._asking = asyncio.Lock()
        self._addresses: tuple[float, dict[str, Endpoint]] = (0.0, {})
        """A cache: gRPC addresses by remoting address, and the time until which it counts."""
        self._elsewhere: dict[str, tuple[float, list[TopicRoute]]] = {}
        self.leaving = False
        """Whether this node stops, so that clients should go to the others."""

    async def find(self, name: str, *, lasting: bool = False) -> list[TopicRoute]:
        """The route in each broker group that has the topic. A topic that its first message would
        create gets its future queues, in this group. ``lasting``: with all members, even if they
        are gone.

        Raises :class:`~broker.errors.UnknownTopicError` and
        :class:`~broker.topics_and_groups.IllegalTopicNameError`.
        """
        check_topic_name(name)
        context = self._context
        found = context.machine.state.topics.get(name)
        elsewhere = await self._others(name)
        here = [] if found is None else [found]
        if not here and not elsewhere:
            here = [self._made(name)]
        endpoints = await self._own_endpoints(lasting=lasting)
        return [TopicRoute(context.config.group, each, endpoints) for each in here] + elsewhere

    async def close(self) -> None:
        """Closes the connections to the NameServers."""
        await self._client.close()

    def _made(self, name: str) -> TopicConfig:
        template = self._context.machine.state.topics.get(AUTO_CREATE_TOPIC)
        if (
            is_reserved(name)
            or not self._context.settings.auto_create_topics
            or template is None
            or not template.perm & PERM_INHERIT
        ):
            raise unknown_topic(name)
        queues = min(USUAL_QUEUES, template.write_queues)
        return TopicConfig(name, queues, queues, template.perm & ~PERM_INHERIT)

    async def _own_endpoints(self, *, lasting: bool) -> tuple[Endpoint, ...]:
        """The endpoints of the members, by the settings and by registrations of others.

        Routes leave out members that are gone, if this node can tell, for so long that each client
        gets a route without them. With other endpoints a client opens its Telemetry stream again.
        With the same endpoints Apache's Python client notices the end of its stream only after
        minutes. Assignments contain all members: with other endpoints a push consumer takes the
        queue for another one, and forgets the attempt id with which it could get lost messages
        again.
        """
        known = {name: at.grpc for name, at in self._context.config.members.items()}
        remote = (await self._grpc_addresses()).get
        for name, at in self._context.node.core.configuration.addresses.items():
            known[name] = known.get(name) or remote(at.client)
        members = {name: at for name, at in known.items() if at is not None}
        there: list[Endpoint] = []
        # If all others came back lately, a leaving node still names them: clients that
        # got its own address would not move otherwise.
        for seconds in () if lasting else (GONE_SECONDS, 0.0):
            there = there or [at for name, at in members.items() if self._is_there(name, seconds)]
        return tuple(dict.fromkeys(there or members.values()))

    def _is_there(self, member: str, seconds: float) -> bool:
        node = self._context.node
        if member == self._context.config.node:
            return not self.leaving
        if node.leadership.leader is None:
            return True  # this node may be the one that is cut off
        return node.links.is_steady(member, seconds)

    async def _others(self, name: str) -> list[TopicRoute]:
        """In other groups. While no NameServer answers, what was told last."""
        loop = self._context.loop
        until, routes = self._elsewhere.get(name, (0.0, []))
        if until > loop.time():
            return routes
        document = await self._ask(
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            {"topic": name, "acceptStandardJsonOnly": "true"},
        )
        if document is None:  # another question may have had an answer meanwhile
            _until, routes = self._elsewhere.get(name, (until, routes))
        else:
            addresses = await self._grpc_addresses()
            routes = list(_routes(name, document, addresses, self._context.config.group))
        if len(self._elsewhere) >= GRPC.routes_max:
            self._elsewhere.clear()
        self._elsewhere[name] = (loop.time() + GRPC.route_seconds, routes)
        return routes

    async def _grpc_addresses(self) -> Mapping[str, Endpoint]:
        loop = self._context.loop
        async with self._asking:  # one asks for all who come meanwhile
            until, known = self._addresses
            if until <= loop.time():
                document = await self._ask(
                    RequestCode.GET_BROKER_CLUSTER_INFO, {"acceptStandardJsonOnly": "true"}
                )
                if document:
                    known = dict(_endpoints(document.get("grpcAddrTable")))
                self._addresses = (loop.time() + GRPC.route_seconds, known)
            return known

    async def _ask(self, code: RequestCode, ext: Mapping[str, str]) -> dict[str, Any] | None:
        """Of the first NameServer that answers: empty if it knows no such topic. None if none
        does."""
        for address in [*self._name_servers]:
            try:
                answer = await self._client.invoke(
                    address, code, ext, timeout=GRPC.nameserver_seconds
                )
                document = decode_json(answer.body) if answer.body else None
            except (CallError, ValueError) as error:
                log.debug("no route from the NameServer %s: %s", address, error)
                # The next question must not wait for this one again.
                self._name_servers.remove(address)
                self._name_servers.append(address)
                continue
            if answer.code == ResponseCode.SUCCESS and isinstance(document, dict):
                return document
            return {}
        return None


def _endpoints(table: object) -> Iterable[tuple[str, Endpoint]]:
    for address, told in table.items() if isinstance(table, dict) else ():
        try:
            yield address, Endpoint.parse(told if isinstance(told, str) else "")
        except ConfigError:
            log.debug("invalid address from the NameServer: %s", told)


def _routes(
    name: str, document: dict[str, Any], addresses: Mapping[str, Endpoint], own_group: str
) -> Iterable[TopicRoute]:
    """The routes in a NameServer's answer. Invalid parts are left out; nothing is raised."""
    try:
        brokers = {data["brokerName"]: data["brokerAddrs"] for data in document["brokerDatas"]}
        for queues in document["queueDatas"]:
            group = queues["brokerName"]
            known = sorted(addresses[at] for at in brokers[group].values() if at in addresses)
            if group == own_group or not known:
                continue
            counts = (queues["readQueueNums"], queues["writeQueueNums"])
            read, write = (min(int(count), STATE.queues_max) for count in counts)
            flag = int(queues.get("topicSysFlag", queues.get("topicSynFlag", 0)))
            topic = TopicConfig(name, read, write, int(queues["perm"]), flag)
            yield TopicRoute(group, topic, tuple(known))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        log.debug("invalid route of %s from the NameServer: %r", name, error)
