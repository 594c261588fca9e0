"""The gRPC service of one broker: its calls, its clients, and forwarding to the leader."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from broker.context import BrokerContext
from broker.errors import ANSWERED
from broker.grpc.access import GrpcAccess
from broker.grpc.call import Call
from broker.grpc.clients import GOODBYE, Clients, LeaderClients
from broker.grpc.dispatcher import Dispatcher
from broker.grpc.forwarding import ForwardedCalls, GrpcForwarder
from broker.grpc.methods import service_methods
from broker.grpc.protocol.service_pb2 import TelemetryCommand
from broker.grpc.renewals import Renewals
from broker.grpc.routes import Routes
from broker.grpc.settings import settings_access
from broker.leader_wait import LeaderWait
from broker.remoting.connection import Connection, Handler
from broker.remoting.protocol.codes import RequestCode
from broker.remoting.protocol.errors import RequestError
from broker.security.credentials import ClientSecurity

log = logging.getLogger(__name__)


class GrpcService:
    """The gRPC service without its port. ``handlers`` serve requests of other brokers, by request
    code of the remoting port."""

    def __init__(
        self,
        context: BrokerContext,
        leader_address: Callable[[], str | None],
        security: ClientSecurity,
    ) -> None:
        """``leader_address`` gives the leader's address as ``host:port``, None while no leader is
        known. ``security`` shows other brokers that this one belongs to the cluster."""
        loop = context.loop
        self._context = context
        self.routes = Routes(context, security)
        self.leader_clients = LeaderClients(context)
        self.renewals = Renewals(loop, context.pop.renewal, self._members)
        self.clients = Clients(loop, self._to_leader, self._check)
        self.forwarder = GrpcForwarder(
            loop,
            str(context.config.own.address),
            leader_address,
            on_command=self.clients.command,
            security=security,
        )
        self._leader_wait = LeaderWait(
            loop, context.config.node, lambda: context.node.leadership.leader
        )
        refusals: Counter[str] = Counter()
        methods = service_methods(context, self.routes, self.clients, self.renewals, refusals)
        access = None if context.access is None else GrpcAccess(context.access)
        self.dispatcher = Dispatcher(
            methods,
            self.forwarder.forward,
            self._leader_wait,
            access,
            lambda: bool(context.node.state_divergence.wrong),
            refusals,
        )
        forwarded = ForwardedCalls(self.dispatcher, self._told)
        self.handlers: Mapping[int, Handler] = {
            RequestCode.FORWARD_GRPC: forwarded.serve,
            RequestCode.CANCEL_GRPC: forwarded.cancel,
        }

    def leadership_changed(self) -> None:
        """Called at each change of leadership."""
        if self._context.node.serving:
            self.renewals.start()
        else:
            self.leader_clients.leads_no_more()
            self.renewals.stop()
        self._leader_wait.leadership_changed()
        node, leader = self._context.node, self._context.node.leadership.leader
        if node.serving or leader not in (None, self._context.config.node):
            self.clients.tell_all()

    def leave(self, on_moved: Callable[[], None]) -> None:
        """Sends clients to the other nodes (:meth:`~broker.grpc.clients.Clients.leave`)."""
        self.routes.leaving = True
        self.clients.leave(on_moved)

    async def close(self) -> None:
        """Closes the connections to other servers."""
        self.clients.close()
        self.renewals.stop()
        await self.forwarder.close()
        await self.routes.close()

    def _members(self, group: str) -> Iterable[str]:
        return {each.client_id for each in self._context.clients.group(group).members.values()}

    def _check(self, call: Call, command: bytes) -> None:
        """Raises :class:`~broker.errors.AccessDeniedError` if the caller may not be what the
        settings in the command say."""
        self.dispatcher.allowed(
            call, lambda: settings_access(TelemetryCommand.FromString(command).settings)
        )

    async def _to_leader(self, call: Call, command: bytes) -> None:
        """Passes a command of this broker's client on to the leader. A heartbeat repeats a lost
        one."""

        async def serve() -> Sequence[bytes]:
            session = self.clients.session(call.client_id)
            if session is None and command != GOODBYE:
                return ()  # its stream has ended meanwhile
            send = None if session is None else session.send
            return self.leader_clients.told(None, call, command, send)

        try:
            await self._leader_wait.serve_or_forward(
                serve, lambda _refusal: self.forwarder.forward(call, command)
            )
        except (*ANSWERED, RequestError) as error:
            log.debug("%s is not reported to the leader: %s", call.client, error)

    async def _told(self, connection: Connection, call: Call, command: bytes) -> Sequence[bytes]:
        """Takes a command of another broker's client."""

        async def serve() -> Sequence[bytes]:
            return self.leader_clients.told(connection, call, command)

        return await self._leader_wait.serve_or_forward(serve, None)
