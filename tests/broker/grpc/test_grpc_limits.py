"""What others can grow in the gRPC port has an end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from broker.errors import UnknownTopicError
from broker.grpc import telemetry as telemetry_module
from broker.grpc.call import Call
from broker.grpc.dispatcher import DECODED_FACTOR
from broker.grpc.protocol import service_pb2 as pb
from broker.grpc.protocol.definition_pb2 import ClientType, Code, MessageType
from broker.grpc.telemetry import HEAR_OUT_SECONDS, Telemetry
from broker.limits import GRPC, GrpcLimits
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from tests.broker.grpc.single_service import (
    CLIENT,
    METADATA,
    SingleService,
    message,
    running_service,
)
from tests.support.virtual_network import NetworkedLoop


def test_the_instance_has_the_usual_limits() -> None:
    assert GrpcLimits() == GRPC
    assert (
        GRPC.metadata_max == 16 << 10
    )  # a real port refuses more: tests/cluster/test_grpc_port.py


@pytest.mark.parametrize(
    ("system", "code"),
    [
        (
            {
                "message_type": MessageType.FIFO,
                "message_group": "g" * (GRPC.message_group_size_max + 1),
            },
            Code.ILLEGAL_MESSAGE_GROUP,
        ),
        (
            {
                "message_type": MessageType.TRANSACTION,
                "orphaned_transaction_recovery_duration": Duration(
                    seconds=GRPC.recovery_seconds_max + 1
                ),
            },
            Code.BAD_REQUEST,
        ),
    ],
)
async def test_a_field_has_a_largest_value(
    service: SingleService, system: dict[str, Any], code: Code
) -> None:
    assert (await service.send(message(**system))).status.code == code


async def test_routes_of_many_topics_are_forgotten(loop: NetworkedLoop, tmp_path: Path) -> None:
    async with running_service(loop, tmp_path, auto_create_topics=False) as service:
        routes = service.service.routes
        for number in range(GRPC.routes_max + 10):
            with pytest.raises(UnknownTopicError):
                await routes.find(f"topic-{number}")
        assert 0 < len(routes._elsewhere) <= GRPC.routes_max


async def test_no_route_leads_to_a_topic_that_no_message_may_create(service: SingleService) -> None:
    routes = service.service.routes
    assert await routes.find("mine")
    with pytest.raises(UnknownTopicError):
        await routes.find("rmq_sys_mine")


@pytest.mark.parametrize(
    ("method", "code"),
    [("ReceiveMessage", Code.TOO_MANY_REQUESTS), ("SendMessage", Code.BAD_REQUEST)],
)
async def test_a_request_is_counted_by_what_it_takes_decoded(
    service: SingleService, method: str, code: Code
) -> None:
    body = bytes(1 + GRPC.bytes_max // DECODED_FACTOR)
    dispatcher = service.service.dispatcher
    (answer,) = await dispatcher.serve(Call(method, METADATA, CLIENT), body)
    response: Any = dispatcher.methods[method].response
    assert response.FromString(answer).status.code == code


async def test_commands_of_many_bytes_wait_for_nobody(service: SingleService) -> None:
    telemetry = Telemetry(service.context, service.service.dispatcher, service.service.clients)
    written: list[int] = []

    async def write(body: bytes) -> None:
        written.append(len(body))
        await asyncio.sleep(1)

    async def said() -> AsyncIterator[bytes]:
        settings = pb.TelemetryCommand()
        settings.settings.client_type = ClientType.PRODUCER
        yield settings.SerializeToString()
        session = service.service.clients.session("client-1")
        assert session is not None
        large = pb.TelemetryCommand()
        large.verify_message_command.message.body = bytes(GRPC.command_bytes_max // 2)
        for _ in range(9):
            session.send(lambda: large)
        await asyncio.sleep(20)

    await telemetry.serve(Call("Telemetry", METADATA, CLIENT), said(), write)
    assert len([size for size in written if size > GRPC.command_bytes_max // 2]) == 2


async def test_commands_for_a_client_that_does_not_read_are_dropped(service: SingleService) -> None:
    telemetry = Telemetry(service.context, service.service.dispatcher, service.service.clients)
    written = 0

    async def write(_body: bytes) -> None:
        nonlocal written
        written += 1
        await asyncio.sleep(1)

    async def said() -> AsyncIterator[bytes]:
        settings = pb.TelemetryCommand()
        settings.settings.client_type = ClientType.PRODUCER
        yield settings.SerializeToString()
        session = service.service.clients.session("client-1")
        assert session is not None
        for _ in range(GRPC.commands_max * 2):
            session.send(pb.TelemetryCommand)
        await asyncio.sleep(GRPC.commands_max * 2)

    await telemetry.serve(Call("Telemetry", METADATA, CLIENT), said(), write)
    assert written <= GRPC.commands_max + 1
    assert telemetry.streams == 0


async def test_what_a_client_says_is_read_as_fast_as_the_leader_hears_it(
    service: SingleService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each command may have megabytes, and would wait here."""
    telemetry = Telemetry(service.context, service.service.dispatcher, service.service.clients)
    heard = 0
    most = 0

    async def slow_leader(_call: Call, _command: bytes) -> None:
        nonlocal heard
        await asyncio.sleep(1)
        heard += 1

    async def write(_body: bytes) -> None: ...

    async def said() -> AsyncIterator[bytes]:
        nonlocal most
        settings = pb.TelemetryCommand()
        settings.settings.client_type = ClientType.PRODUCER
        yield settings.SerializeToString()
        for number in range(20):
            most = max(most, number - heard)
            answer = pb.TelemetryCommand()
            answer.thread_stack_trace.nonce = str(number)
            yield answer.SerializeToString()

    monkeypatch.setattr(service.service.clients, "_to_leader", slow_leader)
    await telemetry.serve(Call("Telemetry", METADATA, CLIENT), said(), write)
    assert heard == 21
    assert most < 2


async def test_heartbeats_without_end_repeat_the_settings_one_at_a_time(
    service: SingleService, monkeypatch: pytest.MonkeyPatch
) -> None:
    telemetry = Telemetry(service.context, service.service.dispatcher, service.service.clients)
    heard = 0

    async def slow_leader(_call: Call, _command: bytes) -> None:
        nonlocal heard
        heard += 1
        await asyncio.sleep(1)

    async def write(_body: bytes) -> None: ...

    async def said() -> AsyncIterator[bytes]:
        settings = pb.TelemetryCommand()
        settings.settings.client_type = ClientType.PRODUCER
        yield settings.SerializeToString()
        for _ in range(40):
            await service.ask("Heartbeat", pb.HeartbeatRequest(), pb.HeartbeatResponse)
            await asyncio.sleep(0.1)
        assert heard == 1 + 4

    monkeypatch.setattr(service.service.clients, "_to_leader", slow_leader)
    await telemetry.serve(Call("Telemetry", METADATA, CLIENT), said(), write)


async def test_settings_that_are_too_long_to_keep_are_refused(service: SingleService) -> None:
    telemetry = Telemetry(service.context, service.service.dispatcher, service.service.clients)
    written: list[pb.TelemetryCommand] = []

    async def write(body: bytes) -> None:
        written.append(pb.TelemetryCommand.FromString(body))

    async def said() -> AsyncIterator[bytes]:
        settings = pb.TelemetryCommand()
        settings.settings.client_type = ClientType.PRODUCER
        settings.settings.user_agent.hostname = "h" * GRPC.settings_bytes_max
        yield settings.SerializeToString()

    await telemetry.serve(Call("Telemetry", METADATA, CLIENT), said(), write)
    assert [each.status.code for each in written] == [Code.BAD_REQUEST]
    assert len(service.service.clients) == 0


@pytest.mark.parametrize("ended_by", ["a refusal", "a half-close"])
async def test_a_stream_is_written_to_once_at_a_time_and_not_after_its_end(
    service: SingleService, ended_by: str
) -> None:
    telemetry = Telemetry(service.context, service.service.dispatcher, service.service.clients)
    writing = 0
    written: list[pb.TelemetryCommand] = []

    async def write(body: bytes) -> None:
        nonlocal writing
        writing += 1
        assert writing == 1
        await asyncio.sleep(1)
        writing -= 1
        written.append(pb.TelemetryCommand.FromString(body))

    async def said() -> AsyncIterator[bytes]:
        settings = pb.TelemetryCommand()
        settings.settings.client_type = ClientType.PRODUCER
        yield settings.SerializeToString()
        await asyncio.sleep(0.5)  # the answer to the settings is being written
        if ended_by == "a refusal":
            yield b"\xff"

    await telemetry.serve(Call("Telemetry", METADATA, CLIENT), said(), write)
    assert writing == 0
    refusals = [each for each in written if not each.HasField("settings")]
    assert written[0].HasField("settings")
    assert len(refusals) == (ended_by == "a refusal")


@pytest.mark.parametrize(
    ("speaks_after", "lives"), [(0.4, 0.4), (99.0, HEAR_OUT_SECONDS)], ids=["speaks", "silent"]
)
async def test_a_stream_that_is_refused_is_heard_out(
    service: SingleService, monkeypatch: pytest.MonkeyPatch, speaks_after: float, lives: float
) -> None:
    """Else its client is told that its write failed, and not why."""
    monkeypatch.setattr(telemetry_module, "GRPC", GrpcLimits(refused_streams_max=1))
    telemetry = Telemetry(service.context, service.service.dispatcher, service.service.clients)
    loop = asyncio.get_running_loop()
    told: list[tuple[float, int]] = []
    ended: list[float] = []
    began = loop.time()

    async def stream() -> None:
        async def write(body: bytes) -> None:
            code = pb.TelemetryCommand.FromString(body).status.code
            told.append((loop.time() - began, code))

        async def said() -> AsyncIterator[bytes]:
            await asyncio.sleep(speaks_after)
            yield b""

        await telemetry.serve(Call("Telemetry", {}, CLIENT), said(), write)
        ended.append(round(loop.time() - began, 3))

    await asyncio.gather(stream(), stream())
    assert told == [(0, Code.CLIENT_ID_REQUIRED)] * 2
    assert ended == [0, lives], "one at a time is heard out"
    assert telemetry.streams == 0


async def test_a_stream_that_ends_with_its_settings_leaves_nothing(
    service: SingleService, caplog: pytest.LogCaptureFixture
) -> None:
    """The leader is told of the client in a later turn of the loop: it is gone by then."""
    telemetry = Telemetry(service.context, service.service.dispatcher, service.service.clients)

    async def write(_body: bytes) -> None: ...

    async def said() -> AsyncIterator[bytes]:
        settings = pb.TelemetryCommand()
        settings.settings.client_type = ClientType.PRODUCER
        settings.settings.publishing.topics.add(name="orders")
        yield settings.SerializeToString()

    await telemetry.serve(Call("Telemetry", METADATA, CLIENT), said(), write)
    await asyncio.sleep(1)
    assert not service.context.clients.producers
    assert not service.service.leader_clients._known
    assert not [each for each in caplog.records if each.levelname == "ERROR"]


@pytest.mark.parametrize("said", ["a bad group", "a bad topic", "noise"])
async def test_what_a_client_of_another_broker_says_may_be_bad(
    service: SingleService, caplog: pytest.LogCaptureFixture, said: str
) -> None:
    """The other broker is told so; nothing fails here."""
    service.broker.broker.serve_brokers(service.service.handlers)
    command = pb.TelemetryCommand()
    command.settings.client_type = ClientType.PUSH_CONSUMER
    command.settings.subscription.group.name = "a b" if said == "a bad group" else "readers"
    command.settings.subscription.subscriptions.add().topic.name = (
        "a" if "topic" not in said else ""
    )
    body = b"\xff" if said == "noise" else command.SerializeToString()
    call = {"method": "Telemetry", "client": CLIENT, "metadata": METADATA, "seconds": None}
    answer = await service.broker.ask(
        RequestCode.FORWARD_GRPC, {"call": json.dumps(call)}, body, seconds=5
    )
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark
    assert not service.context.clients.consumers
    assert not [each for each in caplog.records if each.levelname == "ERROR"]
