"""QueryRoute and QueryAssignment: the queues of a topic, and those from which a consumer
receives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from google.protobuf.message import Message as AnyMessage

from broker.grpc.call import Call, name_of
from broker.grpc.protocol.definition_pb2 import (
    Address,
    AddressScheme,
    Assignment,
    Broker,
    Endpoints,
    MessageQueue,
    MessageType,
    Permission,
    Resource,
)
from broker.grpc.protocol.service_pb2 import (
    QueryAssignmentRequest,
    QueryAssignmentResponse,
    QueryRouteRequest,
    QueryRouteResponse,
)
from broker.grpc.routes import Routes, TopicRoute
from broker.grpc.statuses import OK
from broker.limits import STATE
from broker.topics_and_groups import TopicConfig, check_group_name
from dledger.wire.endpoint import Endpoint

ANY_QUEUE = -1
"""The queue id that stands for all queues of a broker, as in RocketMQ."""

DIALS_ONE = frozenset(("HTTP", "NODE_JS"))
"""The language of Apache's Node.js client. It takes several addresses for one host name, which it
cannot resolve."""

CHECKS_ONE = frozenset(("PYTHON",))
"""The language of a client that, with TLS, looks for the text of all its addresses in the
certificate. So it must get only one."""

_ALL_TYPES = (MessageType.NORMAL, MessageType.FIFO, MessageType.DELAY, MessageType.TRANSACTION)


class RouteCalls:
    """Answers queries of routes, on any broker."""

    def __init__(self, routes: Routes, own: Endpoint | None, told: Callable[[str], None]) -> None:
        """``own``: the gRPC address of this node. ``told`` is called with the id of the asking
        client."""
        self._routes = routes
        self._own = own
        self._told = told

    async def route(self, call: Call, request: QueryRouteRequest) -> Sequence[AnyMessage]:
        """All queues of the topic in all broker groups. The endpoints of a group are those of all
        its nodes, because each node answers or forwards calls."""
        routes = await self._find(call, request.topic)
        self._told(call.client_id)
        queues = [queue for route in routes for queue in _queues(route, request.topic)]
        return [QueryRouteResponse(status=OK, message_queues=queues)]

    async def assignment(self, call: Call, request: QueryAssignmentRequest) -> Sequence[AnyMessage]:
        """All broker groups for each consumer: POP shares out the messages."""
        check_group_name(name_of(request.group))
        assignments = [
            Assignment(message_queue=_queue(route, request.topic, ANY_QUEUE, Permission.READ))
            for route in await self._find(call, request.topic, lasting=True)
            if route.topic.readable
        ]
        return [QueryAssignmentResponse(status=OK, assignments=assignments)]

    async def _find(
        self, call: Call, topic: Resource, *, lasting: bool = False
    ) -> list[TopicRoute]:
        routes = await self._routes.find(name_of(topic), lasting=lasting)
        language = call.metadata.get("x-mq-language")
        if language not in DIALS_ONE and not (call.tls and language in CHECKS_ONE):
            return routes
        return [route._replace(endpoints=self._one(route.endpoints)) for route in routes]

    def _one(self, known: tuple[Endpoint, ...]) -> tuple[Endpoint, ...]:
        """Only this node if it is one of them, because the client reaches it; otherwise the
        first."""
        return (self._own,) if self._own is not None and self._own in known else known[:1]


def message_types(topic: TopicConfig) -> Iterable[MessageType]:
    """The message types that the topic allows."""
    if topic.message_type in ("UNSPECIFIED", "MIXED"):
        return _ALL_TYPES
    return [each for each in _ALL_TYPES if MessageType.Name(each) == topic.message_type]


def _queues(route: TopicRoute, name: Resource) -> Iterable[MessageQueue]:
    topic = route.topic
    for queue_id in range(min(topic.queues, STATE.queues_max)):
        reads = topic.readable and queue_id < topic.read_queues
        writes = topic.writable and queue_id < topic.write_queues
        yield _queue(route, name, queue_id, _PERMISSIONS[reads, writes])


_PERMISSIONS = {
    (False, False): Permission.NONE,
    (True, False): Permission.READ,
    (False, True): Permission.WRITE,
    (True, True): Permission.READ_WRITE,
}


def _queue(
    route: TopicRoute, name: Resource, queue_id: int, permission: Permission
) -> MessageQueue:
    return MessageQueue(
        topic=name,
        id=queue_id,
        permission=permission,
        broker=Broker(name=route.group, id=0, endpoints=endpoints_of(route.endpoints)),
        accept_message_types=message_types(route.topic),
    )


def endpoints_of(addresses: Iterable[Endpoint]) -> Endpoints:
    """The endpoints, always in the same order, because clients compare them."""
    return Endpoints(
        scheme=AddressScheme.IPv4,
        addresses=[Address(host=each.host, port=each.port) for each in addresses],
    )
