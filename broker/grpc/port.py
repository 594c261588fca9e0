"""The gRPC port: grpcio's asyncio server, its limits, and the bytes of each call.

Requests and answers pass here as bytes; :mod:`broker.grpc.dispatcher` decodes them. So an invalid
request gets a status, not an error of the transport.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias
from urllib.parse import unquote

import grpc

from broker.context import BrokerContext
from broker.grpc.call import TELEMETRY, Call
from broker.grpc.relay import LOOPBACK, Relay
from broker.grpc.service import GrpcService
from broker.grpc.telemetry import Telemetry
from broker.grpc.tls import GrpcTls
from broker.limits import GRPC
from broker.remoting.connection import Handler
from broker.security.credentials import ClientSecurity
from dledger.wire.endpoint import Endpoint

SERVICE = "apache.rocketmq.v2.MessagingService"
STOP_SECONDS = 0.2
"""Pace: how long calls in progress may take when the port closes."""

_FRAME_MARGIN = 64 << 10
_Context: TypeAlias = Any  # grpc.aio.ServicerContext, which grpc-stubs does not type


class GrpcPort:
    """gRPC as one of the wires of a broker (see :class:`~broker.server.environment.Wire`)."""

    def __init__(
        self,
        endpoint: Endpoint,
        tls: GrpcTls,
        context: BrokerContext,
        leader_address: Callable[[], str | None],
        security: ClientSecurity,
    ) -> None:
        """See :class:`~broker.grpc.service.GrpcService`."""
        self._service = service = GrpcService(context, leader_address, security)
        self._telemetry = Telemetry(context, service.dispatcher, service.clients)
        self._endpoint = endpoint
        self._size_max = context.config.max_message_size
        self._credentials = tls.credentials
        self._relay = None if tls.mixed is None else Relay(context.loop, tls.mixed, endpoint)
        self._server: Any = None
        self.handlers: Mapping[int, Handler] = service.handlers
        self.refusals: Mapping[str, int] = service.dispatcher.refusals
        self.leadership_changed = service.leadership_changed
        self.leave = service.leave

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
        self._server = server = grpc.aio.server(options=self._options())
        server.add_generic_rpc_handlers((self._handlers(),))
        address = f"{LOOPBACK}:0" if self._relay is not None else str(self._endpoint)
        try:
            if self._credentials is None:
                port = server.add_insecure_port(address)
            else:
                port = server.add_secure_port(address, self._credentials)
        except RuntimeError as error:
            raise OSError(f"{address}: {error}") from error
        if port == 0:
            raise OSError(f"{address}: cannot be used")
        await server.start()
        if self._relay is not None:
            await self._relay.start(port)

    async def stop(self) -> None:
        """Closes the port, and the connections to other servers."""
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop(STOP_SECONDS)
        if self._relay is not None:
            self._relay.close()
        await self._service.close()

    def _options(self) -> list[tuple[str, int]]:
        ping_ms = int(GRPC.ping_seconds * 1000)
        return [
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", self._size_max + _FRAME_MARGIN),
            ("grpc.max_send_message_length", -1),
            ("grpc.max_metadata_size", GRPC.metadata_max),
            ("grpc.absolute_max_metadata_size", GRPC.metadata_max),
            ("grpc.max_concurrent_streams", GRPC.connection_streams_max),
            ("grpc.max_allowed_incoming_connections", GRPC.connections_max),
            ("grpc.max_connection_idle_ms", int(GRPC.idle_seconds * 1000)),
            ("grpc.keepalive_time_ms", ping_ms),
            ("grpc.keepalive_timeout_ms", ping_ms // 2),
            ("grpc.keepalive_permit_without_calls", 1),
            # Clients may ping as often as they like.
            ("grpc.http2.max_ping_strikes", 0),
            ("grpc.http2.min_recv_ping_interval_without_data_ms", 1_000),
        ]

    def _call(self, name: str, context: _Context) -> Call:
        metadata = {
            key: value for key, value in context.invocation_metadata() or () if type(value) is str
        }
        client, tls = _address(context.peer()), self._credentials is not None
        if self._relay is not None:
            client, tls = self._relay.client(client)
        return Call(name, metadata, client, seconds=context.time_remaining(), tls=tls)

    def _handlers(self) -> grpc.GenericRpcHandler[bytes, bytes]:
        handlers = {
            name: grpc.unary_stream_rpc_method_handler(self._stream(name))
            if method.streams
            else grpc.unary_unary_rpc_method_handler(self._unary(name))
            for name, method in self._service.dispatcher.methods.items()
        }
        handlers[TELEMETRY] = grpc.stream_stream_rpc_method_handler(self._stream_telemetry)
        return grpc.method_handlers_generic_handler(SERVICE, handlers)

    def _unary(self, name: str) -> Callable[[bytes, _Context], Awaitable[bytes]]:
        async def serve(request: bytes, context: _Context) -> bytes:
            (answer,) = await self._answers(name, request, context)
            return answer

        return serve

    def _stream(self, name: str) -> Callable[[bytes, _Context], AsyncIterator[bytes]]:
        async def serve(request: bytes, context: _Context) -> AsyncIterator[bytes]:
            for each in await self._answers(name, request, context):
                yield each

        return serve

    async def _answers(self, name: str, request: bytes, context: _Context) -> Sequence[bytes]:
        """The answers. grpcio tells when it has sent them all, or the client is gone."""
        return await self._service.dispatcher.serve(
            self._call(name, context), request, context.add_done_callback
        )

    async def _stream_telemetry(self, said: AsyncIterator[bytes], context: _Context) -> None:
        with suppress(grpc.aio.BaseError):  # the client is gone
            await self._telemetry.serve(self._call(TELEMETRY, context), said, context.write)


def _address(peer: str) -> str:
    """``host:port`` of grpcio's text of a peer, such as ``ipv4:127.0.0.1:4711``."""
    return unquote(peer.partition(":")[2])
