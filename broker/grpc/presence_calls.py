"""Heartbeat and NotifyClientTermination: a client says that it is there, or that it goes."""

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


class PresenceCalls:
    """Handles what clients say of themselves beside their Telemetry streams."""

    def __init__(self, context: BrokerContext, clients: Clients, renewals: Renewals) -> None:
        self._context = context
        self._clients = clients
        self._renewals = renewals

    async def heartbeat(self, call: Call, request: HeartbeatRequest) -> Sequence[AnyMessage]:
        """A client is known by its settings. Without a stream it is not known, but the leader hears
        that it still works on its messages."""
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
        self._clients.beats(session)
        return [HeartbeatResponse(status=OK)]

    async def terminate(
        self, call: Call, _request: NotifyClientTerminationRequest
    ) -> Sequence[AnyMessage]:
        """Whoever goes twice is gone."""
        session = self._clients.session_of(call)
        if session is not None:
            self._clients.closed(session)
        return [NotifyClientTerminationResponse(status=OK)]


def heartbeat_access(request: HeartbeatRequest) -> Iterable[Access]:
    """What a member of the group needs; a producer names none."""
    group = name_of(request.group)
    return (consume_as(group),) if group else DESCRIBE
