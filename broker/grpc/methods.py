"""Every call of the service: its messages, its permissions, and its handler."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from broker.context import BrokerContext
from broker.grpc.clients import Clients
from broker.grpc.consume_calls import ConsumeCalls, member_access, queue_access
from broker.grpc.dispatcher import Method
from broker.grpc.heartbeat_calls import HeartbeatCalls, heartbeat_access
from broker.grpc.offset_calls import OffsetCalls
from broker.grpc.protocol import service_pb2 as pb
from broker.grpc.renewals import Renewals
from broker.grpc.route_calls import RouteCalls
from broker.grpc.routes import Routes
from broker.grpc.send_calls import SendCalls, send_access, topic_access


def service_methods(
    context: BrokerContext,
    routes: Routes,
    clients: Clients,
    renewals: Renewals,
    refusals: Counter[str],
) -> Mapping[str, Method]:
    """The methods by name, without Telemetry, which is a stream in both directions. ``refusals``
    counts refusals by reason."""
    route = RouteCalls(routes, context.config.own.grpc, clients.told_a_route)
    send = SendCalls(context, refusals)
    heartbeats = HeartbeatCalls(context, clients, renewals)
    consume = ConsumeCalls(context, renewals)
    offsets = OffsetCalls(context)
    return {
        "QueryRoute": Method(pb.QueryRouteRequest, pb.QueryRouteResponse, route.route),
        "QueryAssignment": Method(
            pb.QueryAssignmentRequest,
            pb.QueryAssignmentResponse,
            route.assignment,
            member_access,
        ),
        "Heartbeat": Method(
            pb.HeartbeatRequest, pb.HeartbeatResponse, heartbeats.heartbeat, heartbeat_access
        ),
        "NotifyClientTermination": Method(
            pb.NotifyClientTerminationRequest,
            pb.NotifyClientTerminationResponse,
            heartbeats.terminate,
        ),
        "SendMessage": Method(
            pb.SendMessageRequest,
            pb.SendMessageResponse,
            send.send,
            send_access,
            has_bodies=True,
            # A retried message is recognised by its id, within the deduplication window.
            repeatable=context.config.dedup_window_seconds > 0,
        ),
        "EndTransaction": Method(
            pb.EndTransactionRequest,
            pb.EndTransactionResponse,
            send.end_transaction,
            topic_access,
        ),
        "ReceiveMessage": Method(
            pb.ReceiveMessageRequest,
            pb.ReceiveMessageResponse,
            consume.receive,
            queue_access,
            streams=True,
            # Further messages of a retry become visible again after their invisible time.
            repeatable=True,
            reads=True,
        ),
        "AckMessage": Method(
            pb.AckMessageRequest,
            pb.AckMessageResponse,
            consume.ack,
            member_access,
        ),
        "ChangeInvisibleDuration": Method(
            pb.ChangeInvisibleDurationRequest,
            pb.ChangeInvisibleDurationResponse,
            consume.change,
            member_access,
            # Apache's Python client tries again with the handle of the answer, whatever its status.
            refusal_repeats="receipt_handle",
        ),
        "ForwardMessageToDeadLetterQueue": Method(
            pb.ForwardMessageToDeadLetterQueueRequest,
            pb.ForwardMessageToDeadLetterQueueResponse,
            consume.give_up,
            member_access,
        ),
        "PullMessage": Method(
            pb.PullMessageRequest, pb.PullMessageResponse, offsets.pull, queue_access, streams=True
        ),
        "UpdateOffset": Method(
            pb.UpdateOffsetRequest,
            pb.UpdateOffsetResponse,
            offsets.update,
            queue_access,
            repeatable=True,
        ),
        "GetOffset": Method(
            pb.GetOffsetRequest,
            pb.GetOffsetResponse,
            offsets.get,
            queue_access,
            repeatable=True,
            reads=True,
        ),
        "QueryOffset": Method(
            pb.QueryOffsetRequest,
            pb.QueryOffsetResponse,
            offsets.query,
            repeatable=True,
            reads=True,
        ),
        "RecallMessage": Method(
            pb.RecallMessageRequest,
            pb.RecallMessageResponse,
            send.recall,
            topic_access,
            repeatable=True,
        ),
    }
