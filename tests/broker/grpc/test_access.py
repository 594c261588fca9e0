"""Who may be what over gRPC, with access control."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from broker.grpc.call import Call
from broker.grpc.protocol import definition_pb2 as df
from broker.grpc.protocol import service_pb2 as pb
from broker.grpc.protocol.definition_pb2 import Code
from broker.grpc.send_calls import send_access
from broker.grpc.telemetry import Telemetry
from broker.limits import GRPC
from broker.remoting.protocol.codes import RequestCode
from tests.broker.grpc.single_service import (
    CLIENT,
    METADATA,
    SingleService,
    message,
    service_of,
)
from tests.broker.remoting.test_access import guarded, put_account
from tests.broker.single_broker import running_broker
from tests.support.virtual_network import NetworkedLoop


def signed_by(key: str, secret: str) -> dict[str, str]:
    """The metadata of a call of client-1."""
    signature = hmac.digest(secret.encode(), b"now", "sha1").hex()
    return METADATA | {
        "x-mq-date-time": "now",
        "authorization": f"MQv2-HMAC-SHA1 Credential={key}, SignedHeaders=x-mq-date-time, "
        f"Signature={signature}",
    }


KEY, SECRET = "thief-1234", "thief-secret"
SIGNED = signed_by(KEY, SECRET)


async def said_settings(
    service: SingleService, settings: df.Settings, metadata: Mapping[str, str] = SIGNED
) -> int:
    """Says them, and goes. Returns the code of the answer."""
    telemetry = Telemetry(service.context, service.service.dispatcher, service.service.clients)
    written: list[pb.TelemetryCommand] = []

    async def said() -> AsyncIterator[bytes]:
        yield pb.TelemetryCommand(settings=settings).SerializeToString()

    async def write(body: bytes) -> None:
        written.append(pb.TelemetryCommand.FromString(body))

    await telemetry.serve(Call("Telemetry", metadata, CLIENT), said(), write)
    return written[0].status.code


async def test_a_member_of_a_group_needs_the_group_whatever_it_subscribes_to(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    """Its subscriptions, or that it has none, would take the place of those of the group."""
    async with running_broker(loop, tmp_path, **guarded()) as broker, service_of(broker) as service:
        await broker.create_topic("mine")
        made = await put_account(
            broker, KEY, secretKey=SECRET, topicPerms="mine=SUB", groupPerms="own=SUB"
        )
        assert made.code == 0
        for group, code in (("own", Code.OK), ("readers", Code.FORBIDDEN)):
            settings = df.Settings(
                client_type=df.ClientType.SIMPLE_CONSUMER,
                subscription=df.Subscription(group=df.Resource(name=group)),
            )
            assert await said_settings(service, settings) == code, group
        assert "readers" not in broker.broker.context.machine.state.groups


async def test_the_stream_of_a_client_is_nobody_elses(loop: NetworkedLoop, tmp_path: Path) -> None:
    """Who took its id would be asked about its transactions, with the messages. Ids are no secret:
    each account may list the clients."""
    async with running_broker(loop, tmp_path, **guarded()) as broker, service_of(broker) as service:
        clients = service.service.clients
        payer = signed_by("payer-1234", "payer-secret")
        for key, secret, topic in (
            (KEY, SECRET, "mine"),
            ("payer-1234", "payer-secret", "payments"),
        ):
            await broker.create_topic(topic)
            made = await put_account(broker, key, secretKey=secret, topicPerms=f"{topic}=PUB")
            assert made.code == 0
        settings = {
            topic: df.Settings(
                client_type=df.ClientType.PRODUCER,
                publishing=df.Publishing(topics=[df.Resource(name=topic)]),
            )
            for topic in ("mine", "payments")
        }
        telemetry = Telemetry(service.context, service.service.dispatcher, clients)

        async def stays() -> AsyncIterator[bytes]:
            yield pb.TelemetryCommand(settings=settings["payments"]).SerializeToString()
            await asyncio.sleep(10)

        async def write(_body: bytes) -> None: ...

        stream = loop.create_task(telemetry.serve(Call("Telemetry", payer, CLIENT), stays(), write))
        await asyncio.sleep(1)
        session = clients.session("client-1")
        assert session is not None
        assert await said_settings(service, settings["mine"]) == Code.FORBIDDEN
        (client,) = service.context.clients.producers["payments"]
        answers: list[object] = []
        client.call(
            RequestCode.GET_CONSUMER_RUNNING_INFO,
            None,
            timeout=0.5,
            done=lambda answer, _failure: answers.append(answer),
        )

        async def answers_for_it() -> AsyncIterator[bytes]:
            trace = pb.ThreadStackTrace(nonce="1", thread_stack_trace="of the thief")
            yield pb.TelemetryCommand(thread_stack_trace=trace).SerializeToString()

        await telemetry.serve(Call("Telemetry", SIGNED, CLIENT), answers_for_it(), write)
        await asyncio.sleep(1)
        assert answers == [None]
        goodbye, beat = pb.NotifyClientTerminationRequest(), pb.HeartbeatRequest()
        service.metadata = SIGNED
        await service.ask("NotifyClientTermination", goodbye, pb.NotifyClientTerminationResponse)
        refused = await service.ask("Heartbeat", beat, pb.HeartbeatResponse)
        assert refused.status.code == Code.UNRECOGNIZED_CLIENT_TYPE
        await asyncio.sleep(1)
        assert clients.session("client-1") is session
        assert set(service.context.clients.producers) == {"payments"}
        service.metadata = payer
        assert (await service.ask("Heartbeat", beat, pb.HeartbeatResponse)).status.code == Code.OK
        await service.ask("NotifyClientTermination", goodbye, pb.NotifyClientTerminationResponse)
        assert clients.session("client-1") is None
        await stream


async def test_who_takes_over_the_id_of_a_client_that_has_gone_gets_nothing_of_it(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    """The leader hears of both at once. It would ask the new client about the transactions of the
    other one, with messages of a topic that the new one may not read."""
    async with running_broker(loop, tmp_path, **guarded()) as broker, service_of(broker) as service:
        telemetry = Telemetry(service.context, service.service.dispatcher, service.service.clients)

        async def producer(key: str, secret: str, topic: str) -> asyncio.Task[None]:
            await broker.create_topic(topic)
            made = await put_account(broker, key, secretKey=secret, topicPerms=f"{topic}=PUB")
            assert made.code == 0
            settings = df.Settings(
                client_type=df.ClientType.PRODUCER,
                publishing=df.Publishing(topics=[df.Resource(name=topic)]),
            )
            begins = loop.time() + 1

            async def stays() -> AsyncIterator[bytes]:
                await asyncio.sleep(begins - loop.time())
                yield pb.TelemetryCommand(settings=settings).SerializeToString()
                await asyncio.sleep(3)

            async def write(_body: bytes) -> None: ...

            call = Call("Telemetry", signed_by(key, secret), CLIENT)
            return loop.create_task(telemetry.serve(call, stays(), write))

        first = await producer("payer-1234", "payer-secret", "payments")
        await asyncio.sleep(3)
        assert set(service.context.clients.producers) == {"payments"}
        second = await producer(KEY, SECRET, "mine")
        await first
        await asyncio.sleep(0.5)
        assert set(service.context.clients.producers) == {"mine"}
        await second


async def test_an_ipv6_address_in_the_white_list_counts(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    async with running_broker(loop, tmp_path, **guarded()) as broker, service_of(broker) as service:
        change = RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG
        assert (await broker.ask(change, {"globalWhiteAddrs": "fd00::7"})).code == 0
        for client, code in (("[fd00::7]:4711", Code.OK), ("[fd00::8]:4711", Code.UNAUTHORIZED)):
            call = Call("NotifyClientTermination", METADATA, client)
            body = pb.NotifyClientTerminationRequest().SerializeToString()
            (answer,) = await service.service.dispatcher.serve(call, body)
            told = pb.NotifyClientTerminationResponse.FromString(answer)
            assert told.status.code == code, client


@pytest.mark.parametrize("by", ["heartbeat", "new leader"])
async def test_who_loses_a_permission_is_no_longer_what_its_settings_say(
    loop: NetworkedLoop, tmp_path: Path, by: str
) -> None:
    """A producer would be asked about transactions, with the messages; a member keeps its place in
    the group. The heartbeat of neither needs to name anything."""
    async with running_broker(loop, tmp_path, **guarded()) as broker, service_of(broker) as service:
        clients = service.service.clients
        permissions = {"topicPerms": "payments=PUB,mine=SUB", "groupPerms": "own=SUB"}
        made = await put_account(broker, KEY, secretKey=SECRET, **permissions)
        assert made.code == 0
        settings = {
            "producer": df.Settings(
                client_type=df.ClientType.PRODUCER,
                publishing=df.Publishing(topics=[df.Resource(name="payments")]),
            ),
            "member": df.Settings(
                client_type=df.ClientType.SIMPLE_CONSUMER,
                subscription=df.Subscription(group=df.Resource(name="own")),
            ),
        }
        telemetry = Telemetry(service.context, service.service.dispatcher, clients)
        metadata = {name: SIGNED | {"x-mq-client-id": name} for name in settings}

        async def write(_body: bytes) -> None: ...

        async def stays(name: str) -> AsyncIterator[bytes]:
            yield pb.TelemetryCommand(settings=settings[name]).SerializeToString()
            await asyncio.sleep(10)

        async def beats(name: str) -> int:
            service.metadata = metadata[name]
            return (
                await service.ask("Heartbeat", pb.HeartbeatRequest(), pb.HeartbeatResponse)
            ).status.code

        streams = [
            loop.create_task(
                telemetry.serve(Call("Telemetry", metadata[name], CLIENT), stays(name), write)
            )
            for name in settings
        ]
        await asyncio.sleep(1)
        known = service.context.clients
        assert [await beats(name) for name in settings] == [Code.OK, Code.OK]
        assert set(known.producers) == {"payments"}
        assert known.group("own").members
        lost = {"topicPerms": "payments=DENY", "groupPerms": "own=DENY"}
        assert (await put_account(broker, KEY, **lost)).code == 0
        if by == "heartbeat":
            assert [await beats(name) for name in settings] == [Code.FORBIDDEN, Code.FORBIDDEN]
        else:
            service.service.leadership_changed()
        await asyncio.sleep(1)
        assert not known.producers
        assert not known.group("own").members
        refused = [await beats(name) for name in settings]
        assert refused == [Code.UNRECOGNIZED_CLIENT_TYPE, Code.UNRECOGNIZED_CLIENT_TYPE]
        await asyncio.gather(*streams)


def test_permissions_are_looked_up_for_no_more_messages_than_a_send_may_have() -> None:
    """4 MiB of empty messages would hold up the event loop for longer than an election timeout."""
    sent = [message(f"topic-{number}") for number in range(2 * GRPC.batch_max)]
    needed = send_access(pb.SendMessageRequest(messages=sent))
    assert len(list(needed)) == GRPC.batch_max
