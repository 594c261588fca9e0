"""Heartbeat and NotifyClientTermination."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from google.protobuf.message import Message as AnyMessage

from broker.context import BrokerContext
from broker.grpc.call import Call, name_of
from broker.grpc.clients import Clients
from broker.grpc.protocol.definition_pb2 import Code
from broker.grpc.protocol.service_pb2 import (
    HeartbeatRequest,
    HeartbeatResponse,
    NotifyClientTerminationRequest,
    NotifyClientTerminationResponse,
)
from broker.grpc.renewals import Renewals
from broker.grpc.statuses import OK, BadCallError
from broker.security.authorize import DESCRIBE, Access, consume_as
from broker.topics_and_groups import check_group_name


class HeartbeatCalls:
    """Handles calls with which clients say that they run, or leave, besides their Telemetry
    streams."""

    def __init__(self, context: BrokerContext, clients: Clients, renewals: Renewals) -> None:
        self._context = context
        self._clients = clients
        self._renewals = renewals

    async def heartbeat(self, call: Call, request: HeartbeatRequest) -> Sequence[AnyMessage]:
        """Renews a client. A client without a stream is unknown, but its deliveries are renewed at
        the leader."""
        if not call.client_id:
            raise BadCallError(Code.CLIENT_ID_REQUIRED, "x-mq-client-id is missing")
        session = self._clients.session_of(call)
        if session is None or session.settings is None:
            if name_of(request.group):
                self._context.batcher.check_serving()
                check_group_name(name_of(request.group))
                self._renewals.heard(name_of(request.group), call.client_id)
            raise BadCallError(
                Code.UNRECOGNIZED_CLIENT_TYPE, "this broker has no settings of that client"
            )
        self._clients.beats(session, call)
        return [HeartbeatResponse(status=OK)]

    async def terminate(
        self, call: Call, _request: NotifyClientTerminationRequest
    ) -> Sequence[AnyMessage]:
        """A client leaves. A repeated call succeeds."""
        session = self._clients.session_of(call)
        if session is not None:
            self._clients.closed(session)
        return [NotifyClientTerminationResponse(status=OK)]


def heartbeat_access(request: HeartbeatRequest) -> Iterable[Access]:
    """The permissions that a member of the group needs; none for a producer."""
    group = name_of(request.group)
    return (consume_as(group),) if group else DESCRIBE
