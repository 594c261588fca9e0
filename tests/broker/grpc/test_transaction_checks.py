"""Producers of gRPC are asked about the transactions of their own topics, where they are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker.grpc import remote_client
from broker.grpc import telemetry as telemetry_module
from broker.grpc.call import Call
from broker.grpc.protocol import definition_pb2 as df
from broker.grpc.protocol import service_pb2 as pb
from broker.grpc.sent_messages import message_of
from broker.grpc.telemetry import Telemetry
from broker.limits import GRPC
from broker.remoting.protocol.codes import ResponseCode
from broker.remoting.protocol.ext_fields import INT32_MAX
from tests.broker.grpc.single_service import CLIENT, METADATA, message, running_service
from tests.support.virtual_network import NetworkedLoop

SECONDS = 20
"""Longer than until the first check."""


async def said(seconds: float) -> AsyncIterator[bytes]:
    """What a producer of the topic says in its stream, which it keeps open so long."""
    settings = df.Settings(
        client_type=df.ClientType.PRODUCER,
        publishing=df.Publishing(topics=[df.Resource(name="orders")]),
    )
    yield pb.TelemetryCommand(settings=settings).SerializeToString()
    await asyncio.sleep(seconds)


async def test_nobody_is_asked_about_a_topic_that_only_a_group_is_named_after(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    """The topics of a gRPC producer are its groups. A producer group of RocketMQ 4 has any name,
    and its open messages are not for whoever may send to a topic of that name."""
    async with running_service(loop, tmp_path, clock_runs=True) as service:
        telemetry = Telemetry(service.context, service.service.dispatcher, service.service.clients)
        asked: list[str] = []

        async def write(body: bytes) -> None:
            command = pb.TelemetryCommand.FromString(body)
            if command.HasField("recover_orphaned_transaction_command"):
                asked.append(command.recover_orphaned_transaction_command.message.topic.name)

        for topic in ("orders", "payments"):
            await service.broker.create_topic(topic)
        stream = loop.create_task(
            telemetry.serve(Call("Telemetry", METADATA, CLIENT), said(SECONDS), write)
        )
        properties = "UNIQ_KEY\x01U1\x02TRAN_MSG\x01true\x02PGROUP\x01orders\x02"
        half = await service.broker.send("payments", 0, b"secret", properties, f="4")
        assert half.code == ResponseCode.SUCCESS
        await service.send(message(message_type=df.MessageType.TRANSACTION))
        await stream
        assert asked == ["orders"]


async def test_whatever_a_half_message_says_its_producer_can_be_asked(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    """A number that no message of gRPC has would stop the leader, and then the next one."""
    async with running_service(loop, tmp_path, clock_runs=True) as service:
        telemetry = Telemetry(service.context, service.service.dispatcher, service.service.clients)
        attempts: list[int] = []

        async def said() -> AsyncIterator[bytes]:
            settings = df.Settings(
                client_type=df.ClientType.PRODUCER,
                publishing=df.Publishing(topics=[df.Resource(name="orders")]),
            )
            yield pb.TelemetryCommand(settings=settings).SerializeToString()
            await asyncio.sleep(SECONDS)

        async def write(body: bytes) -> None:
            command = pb.TelemetryCommand.FromString(body)
            if command.HasField("recover_orphaned_transaction_command"):
                asked = command.recover_orphaned_transaction_command.message
                attempts.append(asked.system_properties.delivery_attempt)

        await service.broker.create_topic("orders")
        stream = loop.create_task(
            telemetry.serve(Call("Telemetry", METADATA, CLIENT), said(), write)
        )
        properties = "UNIQ_KEY\x01U1\x02TRAN_MSG\x01true\x02PGROUP\x01orders\x02"
        half = await service.broker.send("orders", 0, b"m", properties, f="4", j=str(INT32_MAX))
        assert half.code == ResponseCode.SUCCESS
        await stream
        assert attempts == [INT32_MAX]


async def test_a_half_message_is_not_decompressed_for_a_client_that_does_not_read(
    loop: NetworkedLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    converted = 0

    def counted(*given: Any) -> df.Message:
        nonlocal converted
        converted += 1
        return message_of(*given)

    monkeypatch.setattr(remote_client, "message_of", counted)
    monkeypatch.setattr(telemetry_module, "GRPC", GRPC._replace(commands_max=1))
    async with running_service(loop, tmp_path, clock_runs=True) as service:
        telemetry = Telemetry(service.context, service.service.dispatcher, service.service.clients)

        async def write(_body: bytes) -> None:
            await asyncio.sleep(SECONDS)

        await service.broker.create_topic("orders")
        stream = loop.create_task(
            telemetry.serve(Call("Telemetry", METADATA, CLIENT), said(SECONDS), write)
        )
        for number in range(5):
            half = message(message_type=df.MessageType.TRANSACTION, message_id=f"m{number}")
            await service.send(half)
        await asyncio.sleep(SECONDS)
        assert converted == 1
        stream.cancel()


@pytest.mark.parametrize("overlap", [2, 0], ids=["noticed late", "in one turn"])
async def test_a_client_that_opened_its_stream_again_is_asked_there(
    loop: NetworkedLoop, tmp_path: Path, overlap: int
) -> None:
    """The broker notices late that the first one is dead: the network lost its end. Or it notices
    both in one turn of the event loop."""
    async with running_service(loop, tmp_path, clock_runs=True) as service:
        telemetry = Telemetry(service.context, service.service.dispatcher, service.service.clients)
        asked: list[str] = []

        def stream(name: str, seconds: float) -> asyncio.Task[None]:
            async def write(body: bytes) -> None:
                command = pb.TelemetryCommand.FromString(body)
                if command.HasField("recover_orphaned_transaction_command"):
                    asked.append(name)

            call = Call("Telemetry", METADATA, CLIENT)
            return loop.create_task(telemetry.serve(call, said(seconds), write))

        await service.broker.create_topic("orders")
        first = stream("first", 3)
        await asyncio.sleep(3 - overlap)
        second = stream("second", 30)
        await service.send(message(message_type=df.MessageType.TRANSACTION))
        await first
        await second
        assert set(asked) == {"second"}


async def test_a_producer_is_asked_about_a_message_with_as_many_attempts_as_there_can_be(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    async with running_service(loop, tmp_path, clock_runs=True) as service:
        telemetry = Telemetry(service.context, service.service.dispatcher, service.service.clients)
        asked: list[int] = []

        async def write(body: bytes) -> None:
            command = pb.TelemetryCommand.FromString(body)
            if command.HasField("recover_orphaned_transaction_command"):
                found = command.recover_orphaned_transaction_command.message
                asked.append(found.system_properties.delivery_attempt)

        await service.broker.create_topic("orders")
        stream = loop.create_task(
            telemetry.serve(Call("Telemetry", METADATA, CLIENT), said(SECONDS), write)
        )
        properties = "UNIQ_KEY\x01U1\x02TRAN_MSG\x01true\x02PGROUP\x01orders\x02"
        half = await service.broker.send("orders", 0, b"m", properties, f="4", j=str(2**31 - 1))
        assert half.code == ResponseCode.SUCCESS
        await stream
        assert asked == [2**31 - 1]
