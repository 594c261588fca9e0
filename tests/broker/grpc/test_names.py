"""A name that no topic, or no group, may have is refused with the same code by all calls."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from google.protobuf.message import Message as AnyMessage

from broker.grpc.protocol import definition_pb2 as df
from broker.grpc.protocol import service_pb2 as pb
from broker.grpc.protocol.definition_pb2 import Code, MessageType
from broker.grpc.settings import check_settings
from broker.grpc.statuses import refusal_status
from broker.topics_and_groups import GROUP_SIZE_MAX, TOPIC_SIZE_MAX, NameRefusedError
from tests.broker.grpc.single_service import SingleService, message

READERS = df.Resource(name="readers")


def on_a_queue(kind: type[AnyMessage], **fields: Any) -> Any:
    def made(group: df.Resource, topic: df.Resource) -> AnyMessage:
        return kind(group=group, message_queue=df.MessageQueue(topic=topic), **fields)

    return made


def of_topic(kind: type[AnyMessage], **fields: Any) -> Any:
    return lambda group, topic: kind(group=group, topic=topic, **fields)


BY_GROUP: dict[str, Any] = {
    "QueryAssignment": of_topic(pb.QueryAssignmentRequest),
    "Heartbeat": lambda group, _topic: pb.HeartbeatRequest(group=group),
    "ReceiveMessage": on_a_queue(pb.ReceiveMessageRequest, batch_size=1),
    "AckMessage": of_topic(pb.AckMessageRequest, entries=[pb.AckMessageEntry()]),
    "ChangeInvisibleDuration": of_topic(pb.ChangeInvisibleDurationRequest),
    "ForwardMessageToDeadLetterQueue": of_topic(pb.ForwardMessageToDeadLetterQueueRequest),
    "PullMessage": on_a_queue(pb.PullMessageRequest),
    "UpdateOffset": on_a_queue(pb.UpdateOffsetRequest),
    "GetOffset": on_a_queue(pb.GetOffsetRequest),
}
"""The requests that name a group."""

BY_TOPIC: dict[str, Any] = {
    name: request for name, request in BY_GROUP.items() if name != "Heartbeat"
} | {
    "QueryRoute": lambda _group, topic: pb.QueryRouteRequest(topic=topic),
    "QueryOffset": lambda _group, topic: pb.QueryOffsetRequest(
        message_queue=df.MessageQueue(topic=topic)
    ),
    "SendMessage": lambda _group, topic: pb.SendMessageRequest(messages=[message(topic.name)]),
    "EndTransaction": lambda _group, topic: pb.EndTransactionRequest(
        topic=topic, resolution=df.TransactionResolution.COMMIT
    ),
    "RecallMessage": lambda _group, topic: pb.RecallMessageRequest(topic=topic),
}
"""The requests that name a topic."""


async def code_of(service: SingleService, name: str, request: AnyMessage) -> int:
    response = service.service.dispatcher.methods[name].response
    body, *_ = await service.raw(name, request.SerializeToString())
    code: int = response.FromString(body).status.code  # type: ignore[attr-defined]  # all have one
    return code


def test_no_call_is_forgotten() -> None:
    without = {
        each.name
        for each in pb.DESCRIPTOR.services_by_name["MessagingService"].methods
        if each.name not in BY_TOPIC
    }
    # Those whose names lie within settings, or that name nothing or a group alone.
    assert without == {
        "Telemetry",
        "Heartbeat",
        "NotifyClientTermination",
        "SyncLiteSubscription",
    }


@pytest.mark.parametrize("name", BY_GROUP)
@pytest.mark.parametrize("group", ["a b", "g" * (GROUP_SIZE_MAX + 1)])
async def test_a_bad_group(service: SingleService, name: str, group: str) -> None:
    await service.broker.create_topic("orders", queues=1)
    request = BY_GROUP[name](df.Resource(name=group), df.Resource(name="orders"))
    assert await code_of(service, name, request) == Code.ILLEGAL_CONSUMER_GROUP


@pytest.mark.parametrize("name", BY_TOPIC)
@pytest.mark.parametrize("topic", ["", "a b", "t" * (TOPIC_SIZE_MAX + 1)])
async def test_a_bad_topic(service: SingleService, name: str, topic: str) -> None:
    request = BY_TOPIC[name](READERS, df.Resource(name=topic))
    assert await code_of(service, name, request) == Code.ILLEGAL_TOPIC


async def test_a_transaction_in_a_topic_without_a_name(service: SingleService) -> None:
    answer = await service.send(message("", message_type=MessageType.TRANSACTION))
    assert answer.status.code == Code.ILLEGAL_TOPIC


@pytest.mark.parametrize(
    ("topic", "group", "code"),
    [
        ("a b", "readers", Code.ILLEGAL_TOPIC),
        ("orders", "a b", Code.ILLEGAL_CONSUMER_GROUP),
        ("orders", "", Code.ILLEGAL_CONSUMER_GROUP),
    ],
)
def test_bad_names_in_the_settings_of_a_client(topic: str, group: str, code: Code) -> None:
    subscription = df.Subscription(
        group=df.Resource(name=group),
        subscriptions=[df.SubscriptionEntry(topic=df.Resource(name=topic))],
    )
    given = df.Settings(client_type=df.ClientType.SIMPLE_CONSUMER, subscription=subscription)
    with pytest.raises(NameRefusedError) as refused:
        check_settings(given)
    assert refusal_status(refused.value, Counter()).code == code
