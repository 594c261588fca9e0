"""The clients of this process: producers and consumers, as their heartbeats describe them.

They are not replicated: a client sends its heartbeat to every broker that it talks to, every 30 s.
A client is known by its connection. It is forgotten when the connection closes or is silent for 120
s. If the members of a consumer group or their subscriptions change, all members are notified
(request 40). They then share out the queues again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from broker.filter.subscription import Subscription
from broker.limits import CLIENTS
from broker.remoting.pending_requests import Done
from broker.remoting.protocol.codes import LanguageCode, RequestCode
from broker.remoting.protocol.errors import TooManyError
from dledger.periodic import Periodic
from store.io.filesystem import Bytes

EXPIRY_SECONDS = 120.0
SCAN_SECONDS = 10.0
BROADCASTING = "BROADCASTING"
NOTIFIED_PER_TURN = 2048
"""Members that are notified in one turn of the event loop: about 10 ms of work."""


def _any(_topic: str) -> bool:
    return True


class ClientConnection(Protocol):
    """The connection to a client: a :class:`~broker.remoting.connection.Connection`, or a client of
    gRPC. It also identifies the client."""

    @property
    def remote_address(self) -> str: ...

    def on_close(self, callback: Callable[[Any], None], /) -> None: ...

    def push(
        self, code: int, ext: Mapping[str, str] | None = None, body: Sequence[Bytes] = ()
    ) -> None: ...

    def call(
        self,
        code: int,
        ext: Mapping[str, str] | None,
        /,
        body: Sequence[Bytes] = (),
        *,
        timeout: float,
        done: Done,
    ) -> None: ...

    def __hash__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Client:
    """One member of a group."""

    client_id: str
    language: LanguageCode
    version: int
    heard_at: float
    shares_queues: bool = True
    """Whether it takes its share of the queues, as clients of RocketMQ 4 do. A client that receives
    by POP does not."""
    owner: str = ""
    """Its account, if access control is on. A client of another account cannot take over its id."""
    may_publish: Callable[[str], bool] = _any
    """Whether it may send to a topic, and so may see half messages of that topic."""

    def as_json(self, connection: ClientConnection) -> dict[str, object]:
        return {
            "clientAddr": connection.remote_address,
            "clientId": self.client_id,
            "language": self.language.name,
            "version": self.version,
        }


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """Settings that all members of a group share; the newest heartbeat counts."""

    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = "CLUSTERING"
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"


@dataclass(slots=True)
class ConsumerGroup:
    """The members of a consumer group that are connected here."""

    settings: ConsumerSettings = ConsumerSettings()
    members: dict[ClientConnection, Client] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)

    def client_ids(self) -> list[str]:
        """Every member once, in a fixed order. A client may have several connections."""
        return sorted({client.client_id for client in self.members.values()})

    def queue_sharers(self) -> list[str]:
        """The members that share out the queues among them."""
        sharers = (client for client in self.members.values() if client.shares_queues)
        return sorted({client.client_id for client in sharers})


_EMPTY = ConsumerGroup()


@dataclass(slots=True)
class _Connected:
    """The groups and ids of one connection. They are forgotten with it."""

    producers: dict[str, None] = field(default_factory=dict)
    consumers: dict[str, None] = field(default_factory=dict)
    ids: dict[str, None] = field(default_factory=dict)


class ConnectedClients:
    """The connected clients. ``notifies(group)`` says whether a group's members are notified of
    changes."""

    def __init__(self, loop: asyncio.AbstractEventLoop, notifies: Callable[[str], bool]) -> None:
        self._loop = loop
        self._notifies = notifies
        self._scans = Periodic(loop, SCAN_SECONDS, self._scan)
        self._connected: dict[ClientConnection, _Connected] = {}
        self._memberships = 0
        self._notified = 0
        self._to_notify: dict[str, None] = {}
        self.consumers: dict[str, ConsumerGroup] = {}
        self.producers: dict[str, dict[ClientConnection, Client]] = {}
        self._by_name: dict[str, tuple[ClientConnection, str]] = {}
        """The connection of each producer, and its account."""

    def start(self) -> None:
        """Begins to look for clients that fell silent."""
        self._scans.start()

    def stop(self) -> None:
        self._scans.stop()

    def check_room(
        self,
        connection: ClientConnection,
        client_id: str,
        producers: Sequence[str],
        consumers: Sequence[str],
    ) -> None:
        """Raises :class:`~broker.remoting.protocol.errors.TooManyError` for a heartbeat beyond
        ``ClientLimits``.
        """
        known = self._connected.get(connection) or _Connected()
        groups = len(known.producers.keys() | set(producers))
        groups += len(known.consumers.keys() | set(consumers))
        more = groups - len(known.producers) - len(known.consumers)
        if groups > CLIENTS.groups_max:
            raise TooManyError(f"the connection is in {groups} groups", CLIENTS.groups_max)
        if len(known.ids.keys() | {client_id}) > CLIENTS.ids_max:
            raise TooManyError("the connection has used more client ids", CLIENTS.ids_max)
        if self._memberships + more > CLIENTS.memberships_max:
            raise TooManyError(
                f"all groups have {self._memberships} members", CLIENTS.memberships_max
            )
        for group in consumers:
            _check_members(connection, group, self.group(group).members)
        for group in producers:
            _check_members(connection, group, self.producers.get(group, {}))

    def id_of(self, connection: ClientConnection) -> str:
        """The id of the client there; empty if it gave none."""
        connected = self._connected.get(connection)
        return next(iter(connected.ids), "") if connected is not None else ""

    def add_producer(self, connection: ClientConnection, group: str, client: Client) -> None:
        """A heartbeat of a producer."""
        connected = self._watch(connection)
        connected.ids[client.client_id] = None
        members = self.producers.setdefault(group, {})
        if connection not in members:
            connected.producers[group] = None
            self._memberships += 1
        members[connection] = client
        named = self._by_name.get(client.client_id)
        if named is None or named[1] == client.owner:
            self._by_name[client.client_id] = connection, client.owner

    def add_consumer(
        self,
        connection: ClientConnection,
        group: str,
        client: Client,
        settings: ConsumerSettings,
        subscriptions: Iterable[Subscription],
    ) -> None:
        """A heartbeat of a consumer; the group is notified if it brought a change."""
        connected = self._watch(connection)
        connected.ids[client.client_id] = None
        found = self.consumers.setdefault(group, ConsumerGroup())
        changed = connection not in found.members
        if changed:
            connected.consumers[group] = None
            self._memberships += 1
        found.members[connection] = client
        found.settings = settings
        if self._subscribe(found, {each.topic: each for each in subscriptions}) or changed:
            self._notify(group)

    def remove(
        self, connection: ClientConnection, *, producer_group: str = "", consumer_group: str = ""
    ) -> None:
        """The client leaves those groups."""
        if producer_group:
            self._remove_producer(connection, producer_group)
        if consumer_group:
            self._remove_consumer(connection, consumer_group)

    def keep_only(
        self, connection: ClientConnection, producers: Iterable[str], consumers: Iterable[str]
    ) -> None:
        """The client leaves all groups but these."""
        connected = self._connected.get(connection) or _Connected()
        for group in connected.producers.keys() - set(producers):
            self._remove_producer(connection, group)
        for group in sorted(connected.consumers.keys() - set(consumers)):  # members are notified
            self._remove_consumer(connection, group)

    def subscription(self, group: str, topic: str) -> Subscription | None:
        """The subscription of ``group`` to ``topic``, if a connected member has one."""
        return self.consumers.get(group, _EMPTY).subscriptions.get(topic)

    def is_broadcasting(self, group: str) -> bool:
        """Whether each member of ``group`` consumes all messages."""
        return self.group(group).settings.message_model == BROADCASTING

    def producer_named(self, client_id: str) -> ClientConnection | None:
        """The connection of the latest heartbeat of that producer, if there is one."""
        named = self._by_name.get(client_id)
        return None if named is None else named[0]

    def member_named(self, group: str, client_id: str) -> ClientConnection | None:
        """A connection of that member of a consumer group, if there is one."""
        members = self.group(group).members.items()
        return next((way for way, client in members if client.client_id == client_id), None)

    def group(self, name: str) -> ConsumerGroup:
        """A consumer group; an empty one if no member is connected."""
        return self.consumers.get(name, _EMPTY)

    def now(self) -> float:
        """The time to put on a heartbeat."""
        return self._loop.time()

    @staticmethod
    def _subscribe(group: ConsumerGroup, wanted: Mapping[str, Subscription]) -> bool:
        """Takes over newer subscriptions and drops missing ones. Returns whether a topic
        changed."""
        changed = wanted.keys() != group.subscriptions.keys()
        for topic, subscription in wanted.items():
            known = group.subscriptions.get(topic)
            if known is None or subscription.version > known.version:
                group.subscriptions[topic] = subscription
        for topic in [topic for topic in group.subscriptions if topic not in wanted]:
            del group.subscriptions[topic]
        return changed

    def _watch(self, connection: ClientConnection) -> _Connected:
        connected = self._connected.get(connection)
        if connected is None:
            connected = self._connected[connection] = _Connected()
            connection.on_close(self._closed)
        return connected

    def _closed(self, connection: ClientConnection) -> None:
        connected = self._connected.get(connection)
        if connected is None:
            return
        for client_id in connected.ids:
            named = self._by_name.get(client_id)
            if named is not None and named[0] is connection:
                del self._by_name[client_id]
        for group in list(connected.producers):
            self._remove_producer(connection, group)
        for group in list(connected.consumers):
            self._remove_consumer(connection, group)
        del self._connected[connection]

    def _remove_producer(self, connection: ClientConnection, group: str) -> None:
        members = self.producers.get(group)
        if members is None or members.pop(connection, None) is None:
            return
        del self._connected[connection].producers[group]
        self._memberships -= 1
        if not members:
            del self.producers[group]

    def _remove_consumer(self, connection: ClientConnection, group: str) -> None:
        found = self.consumers.get(group)
        if found is None or found.members.pop(connection, None) is None:
            return
        del self._connected[connection].consumers[group]
        self._memberships -= 1
        if found.members:
            self._notify(group)
        else:
            del self.consumers[group]

    def _notify(self, group: str) -> None:
        """Notifies the members: at once, or later if very many are notified in this turn of the
        loop."""
        if not self._notifies(group):
            return
        if not self._notified and not self._to_notify:
            self._loop.call_soon(self._notify_rest)
        if self._notified >= NOTIFIED_PER_TURN:
            self._to_notify[group] = None
            return
        members = self.consumers[group].members
        self._notified += len(members)
        for connection in members:
            connection.push(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group})

    def _notify_rest(self) -> None:
        self._notified = 0
        groups, self._to_notify = self._to_notify, {}
        for group in groups:
            if group in self.consumers:
                self._notify(group)

    def _scan(self) -> None:
        silent_since = self._loop.time() - EXPIRY_SECONDS
        for group, known in list(self.producers.items()):
            for connection in _silent(known, silent_since):
                self._remove_producer(connection, group)
        for group, found in list(self.consumers.items()):
            for connection in _silent(found.members, silent_since):
                self._remove_consumer(connection, group)


def _check_members(
    connection: ClientConnection, group: str, members: Mapping[ClientConnection, Client]
) -> None:
    if len(members) >= CLIENTS.members_max and connection not in members:
        raise TooManyError(f"the group {group} has {len(members)} members", CLIENTS.members_max)


def _silent(members: Mapping[ClientConnection, Client], since: float) -> list[ClientConnection]:
    return [connection for connection, client in members.items() if client.heard_at <= since]
