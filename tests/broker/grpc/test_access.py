"""Who may be what over gRPC, with access control."""

from __future__ import annotations

import hmac
from collections.abc import AsyncIterator
from pathlib import Path

from broker.grpc.call import Call
from broker.grpc.protocol import definition_pb2 as df
from broker.grpc.protocol import service_pb2 as pb
from broker.grpc.protocol.definition_pb2 import Code
from broker.grpc.telemetry import Telemetry
from tests.broker.grpc.single_service import CLIENT, METADATA, SingleService, service_of
from tests.broker.remoting.test_access import guarded, put_account
from tests.broker.single_broker import running_broker
from tests.support.virtual_network import NetworkedLoop

KEY, SECRET = "thief-1234", "thief-secret"
SIGNATURE = hmac.digest(SECRET.encode(), b"now", "sha1").hex()
SIGNED = METADATA | {
    "x-mq-date-time": "now",
    "authorization": f"MQv2-HMAC-SHA1 Credential={KEY}, SignedHeaders=x-mq-date-time, "
    f"Signature={SIGNATURE}",
}


async def said_settings(service: SingleService, settings: df.Settings) -> int:
    """Says them, and goes. Returns the code of the answer."""
    telemetry = Telemetry(service.context, service.service.dispatcher, service.service.clients)
    written: list[pb.TelemetryCommand] = []

    async def said() -> AsyncIterator[bytes]:
        yield pb.TelemetryCommand(settings=settings).SerializeToString()

    async def write(body: bytes) -> None:
        written.append(pb.TelemetryCommand.FromString(body))

    await telemetry.serve(Call("Telemetry", SIGNED, CLIENT), said(), write)
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
