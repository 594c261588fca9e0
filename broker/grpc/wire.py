"""gRPC as one of the wires of a broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from broker.context import BrokerContext
from broker.grpc.port import GrpcPort
from broker.grpc.service import GrpcService
from broker.grpc.telemetry import Telemetry
from broker.grpc.tls import GrpcTls
from broker.remoting.connection import Handler
from broker.security.credentials import ClientSecurity
from dledger.wire.endpoint import Endpoint


class GrpcWire:
    """See :class:`~broker.server.environment.Wire`."""

    def __init__(
        self,
        endpoint: Endpoint,
        tls: GrpcTls,
        context: BrokerContext,
        leader_address: Callable[[], str | None],
        security: ClientSecurity,
    ) -> None:
        """See :class:`~broker.grpc.service.GrpcService`."""
        self._service = GrpcService(context, leader_address, security)
        self._telemetry = Telemetry(context, self._service.dispatcher, self._service.clients)
        self._port = GrpcPort(
            self._service, self._telemetry, endpoint, context.config.max_message_size, tls
        )
        self.handlers: Mapping[int, Handler] = self._service.handlers
        self.refusals: Mapping[str, int] = self._service.dispatcher.refusals
        self.leadership_changed = self._service.leadership_changed
        self.leave = self._service.leave

    def connections(self) -> int:
        """The number of Telemetry streams; grpcio does not show its connections."""
        return self._telemetry.streams

    def has_clients(self) -> bool:
        """Whether a client may still call this leaving broker."""
        return self._service.clients.staying

    def forwarded(self) -> int:
        """The number of forwarded calls."""
        return self._service.forwarder.forwarded

    async def start(self) -> None:
        """Listens. Raises ``OSError`` if the port is taken."""
        await self._port.start()

    async def stop(self) -> None:
        """Closes the port, and the connections to other servers."""
        await self._port.stop()
        await self._service.close()
