"""Clients: heartbeat (34), unregistration (35), members of a group (38, 203, 204, 328), and 46."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from broker.context import BrokerContext
from broker.delivery.message_filter import message_filter
from broker.filter.subscription import Subscription
from broker.limits import CLIENTS
from broker.remoting.access_guard import caller_of
from broker.remoting.connected_clients import Client, ClientConnection, ConsumerSettings
from broker.remoting.connection import Connection
from broker.remoting.processors.json_body import json_object, objects_of
from broker.remoting.protocol.codes import ResponseCode
from broker.remoting.protocol.errors import FieldError, RequestError, TooManyError
from broker.remoting.protocol.ext_fields import ext_str
from broker.remoting.protocol.frame import Frame
from broker.remoting.protocol.java_json import encode_json
from broker.security.authorize import authorize, publish
from store.quoting import quoted

CONSUME_TYPES = ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP")
MESSAGE_MODELS = ("BROADCASTING", "CLUSTERING")
CONSUME_FROM_WHERE = (
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
)
"""In the order of Java's enumerations: C++ clients send the ordinal, not the name."""


class ClientManageProcessor:
    """Handles heartbeats, and answers who is connected."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._clients = context.clients

    def heartbeat(self, connection: Connection, request: Frame) -> None:
        """Code 34. On the leader it creates a new group and its retry topic."""
        body = json_object(request, "the heartbeat")
        client_id = body.get("clientID")
        if type(client_id) is not str or not client_id:
            raise FieldError(f"the heartbeat has no clientID: {quoted(client_id)}")
        check_size("the clientID", client_id)
        caller = caller_of(request)
        client = Client(
            *(client_id, request.language, request.version, self._clients.now()),
            owner=caller.name,
            may_publish=lambda topic: not authorize(caller, publish(topic)),
        )
        producer_data, consumer_data = (
            objects_of(body, name) for name in ("producerDataSet", "consumerDataSet")
        )
        groups = len(producer_data) + len(consumer_data)
        if groups > CLIENTS.groups_max:
            raise TooManyError(f"the heartbeat has {groups} groups", CLIENTS.groups_max)
        producers = [_group_name(each) for each in producer_data]
        consumers = [
            (_group_name(each), _settings(each), _subscriptions(each)) for each in consumer_data
        ]
        names = [group for group, _settings_of, _topics in consumers]
        self._clients.check_room(connection, client_id, producers, names)
        self._context.ingest.auto_creator.ensure_groups(names)
        for group in producers:
            self._clients.add_producer(connection, group, client)
        for group, settings, subscriptions in consumers:
            self._clients.add_consumer(connection, group, client, settings, subscriptions)
        connection.respond(request)

    def unregister(self, connection: Connection, request: Frame) -> None:
        """Code 35. A client that leaves only one kind of group omits the other name, or sends it
        empty."""
        ext_str(request, "clientID")
        self._clients.remove(
            connection,
            producer_group=ext_str(request, "producerGroup", ""),
            consumer_group=ext_str(request, "consumerGroup", ""),
        )
        connection.respond(request)

    def check_client_config(self, connection: Connection, request: Frame) -> None:
        """Code 46: whether a client may use this subscription."""
        body = json_object(request, "the client config")
        subscription = body.get("subscriptionData")
        if isinstance(subscription, dict) and subscription.get("expressionType"):
            expression = subscription.get("subString")
            message_filter(
                self._context.settings,
                str(subscription["expressionType"]),
                expression if isinstance(expression, str) else "",
            )
        connection.respond(request)

    def consumer_list(self, connection: Connection, request: Frame) -> None:
        """Code 38."""
        group = ext_str(request, "consumerGroup")
        sharers = self._clients.group(group).queue_sharers()
        if not sharers:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"no consumer of the group {group} is connected"
            )
        body = encode_json({"consumerIdList": sharers})
        connection.respond(request, body=(body,))

    def consumer_connections(self, connection: Connection, request: Frame) -> None:
        """Code 203."""
        group = ext_str(request, "consumerGroup")
        found = self._clients.consumers.get(group)
        if found is None:
            raise no_member(group)
        body = {
            "connectionSet": _connections(found.members),
            "consumeFromWhere": found.settings.consume_from_where,
            "consumeType": found.settings.consume_type,
            "messageModel": found.settings.message_model,
            "subscriptionTable": {
                topic: subscription.as_json()
                for topic, subscription in sorted(found.subscriptions.items())
            },
        }
        connection.respond(request, body=(encode_json(body),))

    def producer_connections(self, connection: Connection, request: Frame) -> None:
        """Code 204."""
        group = ext_str(request, "producerGroup")
        members = self._clients.producers.get(group)
        if members is None:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"the producer group[{group}] not exist: none is connected",
            )
        body = encode_json({"connectionSet": _connections(members)})
        connection.respond(request, body=(body,))

    def all_producers(self, connection: Connection, request: Frame) -> None:
        """Code 328."""
        now, now_ms = self._clients.now(), self._context.wall_clock()
        producers = {
            group: [
                {
                    "clientId": client.client_id,
                    "remoteIP": member.remote_address,
                    "language": client.language.name,
                    "version": client.version,
                    "lastUpdateTimestamp": now_ms - int((now - client.heard_at) * 1000),
                }
                for member, client in members.items()
            ]
            for group, members in sorted(self._clients.producers.items())
        }
        connection.respond(request, body=(encode_json({"data": producers}),))


def _connections(members: Mapping[ClientConnection, Client]) -> list[dict[str, object]]:
    return [client.as_json(connection) for connection, client in members.items()]


def no_member(group: str) -> RequestError:
    """The refusal of a request about a group without a connected member."""
    return RequestError(
        ResponseCode.CONSUMER_NOT_ONLINE, f"no client of the group {group} is connected"
    )


def _group_name(data: Mapping[str, Any]) -> str:
    group = data.get("groupName")
    if type(group) is not str or not group:
        raise FieldError(f"a group has no name: {quoted(group)}")
    check_size("the name of a group", group)
    return group


def _settings(data: Mapping[str, Any]) -> ConsumerSettings:
    usual = ConsumerSettings()
    return ConsumerSettings(
        _enumerated(data, "consumeType", CONSUME_TYPES, usual.consume_type),
        _enumerated(data, "messageModel", MESSAGE_MODELS, usual.message_model),
        _enumerated(data, "consumeFromWhere", CONSUME_FROM_WHERE, usual.consume_from_where),
    )


def _enumerated(data: Mapping[str, Any], name: str, names: Sequence[str], usual: str) -> str:
    value = data.get(name)
    if type(value) is int and 0 <= value < len(names):
        return names[value]
    return value if type(value) is str and value in names else usual


def _subscriptions(data: Mapping[str, Any]) -> list[Subscription]:
    described = objects_of(data, "subscriptionDataSet")
    if len(described) > CLIENTS.subscriptions_max:
        what = f"a group has {len(described)} subscriptions"
        raise TooManyError(what, CLIENTS.subscriptions_max)
    try:
        subscriptions = [Subscription.from_json(each) for each in described]
    except ValueError as error:
        raise FieldError(str(error)) from None
    for subscription in subscriptions:
        check_size("a topic that is subscribed to", subscription.topic)
    return subscriptions


def check_size(kind: str, name: str) -> None:
    """Raises :class:`~broker.remoting.protocol.errors.TooManyError` for a name that is too long."""
    if len(name) > CLIENTS.name_size_max:
        raise TooManyError(f"{kind} has {len(name)} characters", CLIENTS.name_size_max)
