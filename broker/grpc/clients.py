"""The clients with a Telemetry stream: at this broker, and at the leader.

A client has its stream at any broker. The leader sends check-backs to producers, and shows
operators the connected clients. So each broker reports its clients to the leader. It sends the
settings of a client when they come, with each heartbeat, and after a change of leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from google.protobuf.message import DecodeError

from broker.context import BrokerContext
from broker.errors import AccessDeniedError, QuotaExceededError
from broker.filter.subscription import SQL_TYPE, TAG_TYPE, Subscription
from broker.grpc.call import TELEMETRY, Call, name_of
from broker.grpc.protocol.definition_pb2 import FilterType, Language, Settings
from broker.grpc.protocol.service_pb2 import TelemetryCommand
from broker.grpc.remote_client import RemoteClient, Send
from broker.grpc.settings import PRODUCERS, check_settings
from broker.remoting.connected_clients import Client, ConsumerSettings
from broker.remoting.connection import Connection
from broker.remoting.protocol.codes import PROTOCOL_VERSION, LanguageCode, RequestCode
from broker.remoting.protocol.errors import FieldError, RequestError
from broker.remoting.protocol.ext_fields import ext_str
from broker.remoting.protocol.frame import Frame

CLIENT_ID = "clientId"
GOODBYE = b""
"""Instead of a command: the client's stream has ended."""

_LANGUAGES = {
    Language.JAVA: LanguageCode.JAVA,
    Language.CPP: LanguageCode.CPP,
    Language.DOT_NET: LanguageCode.DOTNET,
    Language.GOLANG: LanguageCode.GO,
    Language.RUST: LanguageCode.RUST,
    Language.PYTHON: LanguageCode.PYTHON,
    Language.PHP: LanguageCode.PHP,
    Language.NODE_JS: LanguageCode.NODE_JS,
    Language.RUBY: LanguageCode.RUBY,
}


class Session:
    """One Telemetry stream at this broker. ``send`` sends a command to the client."""

    def __init__(self, call: Call, send: Send) -> None:
        self.call = call
        self.send = send
        self.settings: bytes | None = None
        """The encoded command with the client's settings: decoded it takes many times as much."""
        self.told: asyncio.Task[None] | None = None
        """The last report to the leader that was not awaited."""


class LeaderClients:
    """The clients of all brokers of the group, at the leader."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._known: dict[tuple[Connection | None, str], RemoteClient] = {}
        """By the connection of the broker that has the stream (None: this broker), and the client
        id."""
        self._watched: set[Connection] = set()

    def told(
        self,
        connection: Connection | None,
        call: Call,
        command: bytes,
        send: Send | None = None,
    ) -> Sequence[bytes]:
        """Takes a command of a client: its settings, an answer, or its end.

        Raises :class:`~dledger.errors.NotLeaderError`,
        :class:`~broker.grpc.statuses.BadCallError` and
        :class:`~broker.errors.QuotaExceededError`.
        """
        self._context.batcher.check_serving()
        key = (connection, call.client_id)
        client = self._known.get(key)
        if command == GOODBYE:
            if client is not None:
                del self._known[key]
                client.close()
            return ()
        try:
            said = TelemetryCommand.FromString(command)
        except DecodeError as error:
            raise FieldError(f"a client sent no valid command: {error}") from None
        if not said.HasField("settings"):
            if client is not None:
                client.answered(said)
            return ()
        check_settings(said.settings)
        if client is None:
            client = self._known[key] = self._new(connection, call, send)
        elif send is not None:
            client.reconnected(call.client, send)
        self._register(client, call, said.settings)
        return ()

    def leads_no_more(self) -> None:
        """Drops all clients: the next leader gets reports of them."""
        known, self._known = self._known, {}
        for client in known.values():
            client.close()

    def _new(
        self,
        connection: Connection | None,
        call: Call,
        send: Send | None,
    ) -> RemoteClient:
        if connection is not None:
            if connection not in self._watched:
                self._watched.add(connection)
                connection.on_close(self._broker_gone)
            fields = {CLIENT_ID: call.client_id}

            def send_on(command: Callable[[], TelemetryCommand]) -> None:
                connection.push(RequestCode.GRPC_COMMAND, fields, (command().SerializeToString(),))

            send = send_on
        assert send is not None  # noqa: S101 - a client of this broker has a stream
        return RemoteClient(self._context.loop, call.client, send)

    def _broker_gone(self, connection: Connection) -> None:
        self._watched.discard(connection)
        for key in [key for key in self._known if key[0] is connection]:
            self._known.pop(key).close()

    def _register(self, client: RemoteClient, call: Call, settings: Settings) -> None:
        clients = self._context.clients
        publishes = settings.client_type in PRODUCERS
        producers = [name_of(topic) for topic in settings.publishing.topics] if publishes else []
        consumers = [] if publishes else [name_of(settings.subscription.group)]
        described = Client(
            call.client_id,
            _LANGUAGES.get(settings.user_agent.language, LanguageCode.OTHER),
            PROTOCOL_VERSION,
            clients.now(),
            shares_queues=False,
            owner="(grpc)",  # replies go only to clients of RocketMQ 4
            # Its topics were checked. They also serve as its groups, which RocketMQ 4 may have too.
            may_publish=frozenset(producers).__contains__,
        )
        try:
            clients.check_room(client, call.client_id, producers, consumers)
        except RequestError as error:
            raise QuotaExceededError(error.remark) from None
        self._context.ingest.auto_creator.ensure_groups(consumers)
        # The settings name everything. The client before may have had this id with another account.
        clients.keep_only(client, producers, consumers)
        client.uses(
            settings.publishing.topics
            if publishes
            else (each.topic for each in settings.subscription.subscriptions)
        )
        for topic in producers:
            clients.add_producer(client, topic, described)
        for group in consumers:
            clients.add_consumer(
                client,
                group,
                described,
                ConsumerSettings(consume_type="CONSUME_POP"),
                _subscriptions(settings, self._context.wall_clock()),
            )


class Clients:
    """The clients whose streams are at this broker."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        to_leader: Callable[[Call, bytes], Awaitable[None]],
        check: Callable[[Call, bytes], None],
    ) -> None:
        """``to_leader`` passes a client's command on to the leader, on any node. ``check`` raises
        :class:`~broker.errors.AccessDeniedError` if the caller may not be what the command with its
        settings says."""
        self._loop = loop
        self._to_leader = to_leader
        self._check = check
        self._sessions: dict[str, Session] = {}
        self._staying: set[str] = set()
        self._on_moved: Callable[[], None] | None = None
        """Set while this broker is leaving."""
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._sessions)

    def opened(self, session: Session) -> None:
        """A stream began. It replaces an earlier one of the same client.

        Raises :class:`~broker.errors.AccessDeniedError` for a client id of another account, whose
        commands this client would get.
        """
        known = self._sessions.get(session.call.client_id)
        if known is not None and known.call.caller.name != session.call.caller.name:
            raise AccessDeniedError("a client of another account has this x-mq-client-id")
        self._sessions[session.call.client_id] = session
        if self._on_moved is not None:
            self._staying.add(session.call.client_id)

    def closed(self, session: Session) -> None:
        """A stream ended."""
        client_id = session.call.client_id
        if self._sessions.get(client_id) is session:
            del self._sessions[client_id]
            self.told_a_route(client_id)
            self.tell(session, GOODBYE)

    def leave(self, on_moved: Callable[[], None]) -> None:
        """This broker stops, and routes no longer contain it. ``on_moved`` is called when a client
        has asked for its route since, or when its stream has ended."""
        self._on_moved = on_moved
        self._staying = set(self._sessions)

    @property
    def staying(self) -> bool:
        """Whether a client may still call this leaving broker."""
        return bool(self._staying)

    def told_a_route(self, client_id: str) -> None:
        """The client has got a route, and calls the nodes of that route from now on."""
        if client_id in self._staying:
            self._staying.discard(client_id)
            if self._on_moved is not None:
                self._on_moved()

    def session(self, client_id: str) -> Session | None:
        """The client's stream at this broker, or None."""
        return self._sessions.get(client_id)

    def session_of(self, call: Call) -> Session | None:
        """The stream of the calling client, or None."""
        session = self._sessions.get(call.client_id)
        return session if session and session.call.caller.name == call.caller.name else None

    async def pass_on(self, session: Session, command: bytes) -> None:
        """Passes a client's command on to the leader; ends once it has arrived, or no leader
        appeared in time."""
        if command == GOODBYE and session.call.client_id in self._sessions:
            return  # the client has opened another stream meanwhile
        call = Call(TELEMETRY, session.call.metadata, session.call.client)
        await self._to_leader(call, command)

    def tell(self, session: Session, command: bytes) -> None:
        """The same, without waiting."""
        session.told = task = self._loop.create_task(self.pass_on(session, command))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def tell_settings(self, session: Session) -> None:
        """Reports a client to the leader, also repeatedly."""
        if session.settings is not None:
            self.tell(session, session.settings)

    def beats(self, session: Session, call: Call) -> None:
        """The heartbeat ``call``: the same, unless a report is still in progress.

        Raises :class:`~broker.errors.AccessDeniedError` if the account has lost a permission that
        the settings need. Then the client is dropped until it sends settings again.
        """
        self._check_again(session, call)
        if session.told is None or session.told.done():
            self.tell_settings(session)

    def tell_all(self) -> None:
        """Reports all clients to a new leader that serves. Earlier, each report would take the
        place of a call that waits for a leader."""
        for session in list(self._sessions.values()):
            with suppress(AccessDeniedError):
                self._check_again(session, session.call)
                self.tell_settings(session)

    def _check_again(self, session: Session, call: Call) -> None:
        """A report renews the client at the leader, so permissions count anew for each."""
        if session.settings is not None:
            try:
                self._check(call, session.settings)
            except AccessDeniedError:
                self.closed(session)
                raise

    def command(self, _connection: Connection, request: Frame) -> None:
        """Code :data:`RequestCode.GRPC_COMMAND`: the leader's command to a client of this
        broker."""
        session = self._sessions.get(ext_str(request, CLIENT_ID))
        if session is None:
            return
        try:
            session.send(lambda: TelemetryCommand.FromString(request.body))
        except DecodeError as error:
            raise FieldError(f"the leader sent no valid command: {error}") from None

    def close(self) -> None:
        """Ends the reports."""
        for task in self._tasks:
            task.cancel()


def _subscriptions(settings: Settings, version: int) -> list[Subscription]:
    found = []
    for entry in settings.subscription.subscriptions:
        kind = SQL_TYPE if entry.expression.type == FilterType.SQL else TAG_TYPE
        expression = entry.expression.expression or "*"
        found.append(Subscription(name_of(entry.topic), expression, version, kind))
    return found
