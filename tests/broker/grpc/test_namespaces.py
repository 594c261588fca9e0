"""The commands to a client name a topic as the client does: by its namespace, if it has one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.grpc.call import Call, name_of
from broker.grpc.protocol import definition_pb2 as df
from broker.grpc.protocol import service_pb2 as pb
from broker.grpc.protocol.definition_pb2 import ClientType, Code
from broker.grpc.telemetry import Telemetry
from broker.remoting.protocol.codes import RequestCode
from tests.broker.grpc.single_service import (
    CLIENT,
    METADATA,
    SingleService,
    message,
    running_service,
)
from tests.support.virtual_network import NetworkedLoop

SECONDS = 20
"""Longer than until the first check."""

TOPICS = [
    df.Resource(resource_namespace="ns", name="orders"),
    df.Resource(name="orders"),
    df.Resource(name="ns%orders"),  # no namespace, although it looks like one
]


async def told(service: SingleService, settings: df.Settings) -> list[pb.TelemetryCommand]:
    """The commands that a client with these settings gets in its stream."""
    telemetry = Telemetry(service.context, service.service.dispatcher, service.service.clients)
    commands = list[pb.TelemetryCommand]()

    async def said() -> AsyncIterator[bytes]:
        yield pb.TelemetryCommand(settings=settings).SerializeToString()
        await asyncio.sleep(SECONDS)

    async def write(body: bytes) -> None:
        commands.append(pb.TelemetryCommand.FromString(body))

    await telemetry.serve(Call("Telemetry", METADATA, CLIENT), said(), write)
    return commands


@pytest.mark.parametrize("topic", TOPICS, ids=name_of)
async def test_a_producer_ends_a_transaction_with_the_topic_of_its_check_back(
    loop: NetworkedLoop, tmp_path: Path, topic: df.Resource
) -> None:
    """Apache's Go client sends back the name as it came, beside its own namespace."""
    async with running_service(loop, tmp_path, clock_runs=True) as service:
        await service.broker.create_topic(name_of(topic))
        settings = df.Settings(
            client_type=ClientType.PRODUCER, publishing=df.Publishing(topics=[topic])
        )
        stream = asyncio.ensure_future(told(service, settings))
        half = message(message_type=df.MessageType.TRANSACTION)
        half.topic.CopyFrom(topic)
        assert (await service.send(half)).status.code == Code.OK
        asked = (await stream)[1].recover_orphaned_transaction_command
        assert asked.message.topic == topic
        request = pb.EndTransactionRequest(
            topic=df.Resource(
                resource_namespace=topic.resource_namespace, name=asked.message.topic.name
            ),
            message_id=half.system_properties.message_id,
            transaction_id=asked.transaction_id,
            resolution=df.TransactionResolution.COMMIT,
        )
        answer = await service.ask("EndTransaction", request, pb.EndTransactionResponse)
        assert answer.status.code == Code.OK


@pytest.mark.parametrize("topic", TOPICS, ids=name_of)
async def test_a_consumer_is_given_a_message_of_the_topic_to_which_it_has_subscribed(
    service: SingleService, topic: df.Resource
) -> None:
    await service.broker.create_topic(name_of(topic))
    sent = await service.broker.send(name_of(topic), 0, b"again")
    entry = df.SubscriptionEntry(topic=topic, expression=df.FilterExpression(expression="*"))
    group = df.Resource(resource_namespace=topic.resource_namespace, name="readers")
    settings = df.Settings(
        client_type=ClientType.PUSH_CONSUMER,
        subscription=df.Subscription(group=group, subscriptions=[entry]),
    )
    stream = asyncio.ensure_future(told(service, settings))
    await asyncio.sleep(1)
    ext = {"consumerGroup": name_of(group), "clientId": "client-1", "msgId": sent.ext["msgId"]}
    asked = asyncio.ensure_future(service.broker.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, ext))
    assert (await stream)[1].verify_message_command.message.topic == topic
    await asked
