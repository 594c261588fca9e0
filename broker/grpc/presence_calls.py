"""Heartbeat and NotifyClientTermination: a client says that it is there, or that it goes."""

from __future__ import annotations

from collections.abc import Sequence

from google.protobuf.message import Message as AnyMessage

from broker.grpc.call import Call
from broker.grpc.clients import Clients
from broker.grpc.protocol.definition_pb2 import Code
from broker.grpc.protocol.service_pb2 import (
    HeartbeatRequest,
    HeartbeatResponse,
    NotifyClientTerminationRequest,
    NotifyClientTerminationResponse,
)
from broker.grpc.statuses import OK, BadCallError


class PresenceCalls:
    """Handles what clients say of themselves beside their Telemetry streams."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    async def heartbeat(self, call: Call, _request: HeartbeatRequest) -> Sequence[AnyMessage]:
        """A client is known by its settings: without a stream it is not known."""
        if not call.client_id:
            raise BadCallError(Code.CLIENT_ID_REQUIRED, "x-mq-client-id is missing")
        session = self._clients.session(call.client_id)
        if session is None or session.settings is None:
            raise BadCallError(
                Code.UNRECOGNIZED_CLIENT_TYPE, "this broker has no settings of that client"
            )
        self._clients.tell_settings(session)
        return [HeartbeatResponse(status=OK)]

    async def terminate(
        self, call: Call, _request: NotifyClientTerminationRequest
    ) -> Sequence[AnyMessage]:
        """Whoever goes twice is gone."""
        session = self._clients.session(call.client_id)
        if session is not None:
            self._clients.closed(session)
        return [NotifyClientTerminationResponse(status=OK)]
