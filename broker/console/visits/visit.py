"""One request of a browser: its user, and the access to the cluster on the user's behalf."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from broker.client.config import ProducerConfig
from broker.client.producer.producer import Producer
from broker.cluster_admin.admin_client import AdminClient
from broker.config.client_security import client_security
from broker.context import BrokerContext
from broker.http.cluster_view import ClusterView
from broker.http.console import Visitor
from broker.limits import CONSOLE
from broker.remoting.client import RemotingClient
from broker.security.credentials import ClientSecurity


class Page(NamedTuple):
    """A page: a template and its values. ``section`` is its entry in the menu."""

    template: str
    title: str
    section: str
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Visit:
    """The cluster, with the account of the visitor."""

    visitor: Visitor
    context: BrokerContext
    view: ClusterView
    """The cluster over HTTP: health, nodes, topics and groups."""
    admin: AdminClient
    """The cluster over remoting: the requests of the command line."""
    security: ClientSecurity
    query: Mapping[str, str]

    @property
    def namesrv(self) -> str:
        """The addresses of the NameServers, in the form for commands."""
        return ";".join(self.context.config.namesrv)

    def producer(self) -> Producer:
        """A producer with the account of the visitor."""
        config = ProducerConfig(group="dledger-console", security=self.security)
        return Producer(self.namesrv, config)


@dataclass(eq=False, slots=True)
class _Kept:
    client: RemotingClient
    users: int = 0
    """The visits in progress that use it."""


class Clients:
    """The connections to other servers, separate for each account."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._kept: dict[ClientSecurity, _Kept] = {}
        """The least recently used ones come first."""
        self._closing: set[asyncio.Task[None]] = set()

    def security(self, visitor: Visitor) -> ClientSecurity:
        """The credentials for requests on behalf of the visitor: only the visitor's own keys. The
        address of this node gives rights only to who has them by their own address."""
        own = client_security(self._context.config.security)
        return replace(own, credentials=visitor.credentials, on_behalf=not visitor.is_trusted)

    @contextmanager
    def admin(self, security: ClientSecurity) -> Iterator[AdminClient]:
        """The connections with these credentials. They stay as long as they are in use: a change
        that is cut in half would leave a group without a member."""
        kept = self._kept.pop(security, None)
        if kept is None:
            kept = _Kept(RemotingClient(self._context.loop, security=security))
        self._kept[security] = kept
        kept.users += 1
        try:
            yield AdminClient(kept.client, ";".join(self._context.config.namesrv))
        finally:
            kept.users -= 1
            self._close_unused()

    def _close_unused(self) -> None:
        too_many = len(self._kept) - CONSOLE.visitors_max
        unused = [security for security, kept in self._kept.items() if not kept.users]
        for security in unused[: max(too_many, 0)]:
            task = asyncio.ensure_future(self._kept.pop(security).client.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Closes all connections."""
        for kept in self._kept.values():
            await kept.client.close()
        self._kept.clear()
