"""The gRPC port of real nodes: whoever is asked answers, whatever comes, and who may is checked."""

from __future__ import annotations

import asyncio
import hmac
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import grpc
import pytest
from google.protobuf.message import Message as AnyMessage

from broker.grpc.port import SERVICE
from broker.grpc.protocol import definition_pb2 as df
from broker.grpc.protocol import service_pb2 as pb
from broker.grpc.protocol.definition_pb2 import Code, MessageType
from broker.limits import GRPC
from broker.security.credentials import Credentials, read_profile
from tests.broker.grpc.single_service import message
from tests.cluster.running_cluster import RunningCluster, secured_cluster, shared_cluster

__all__ = ["secured_cluster", "shared_cluster"]

M = TypeVar("M", bound=AnyMessage)
SECONDS = 5.0
RUNNER = asyncio.Runner()
"""One event loop for all tests: grpcio's completion queue stays with the first that it meets."""

DATE = "20261123T000000Z"
ORDERS = df.Resource(name="orders")


class GrpcClient:
    """Calls one node."""

    def __init__(self, channel: Any, metadata: tuple[tuple[str, str], ...]) -> None:
        self._channel = channel
        self.metadata = metadata

    async def ask(self, method: str, request: AnyMessage, answer: type[M]) -> M:
        call = self._channel.unary_unary(
            f"/{SERVICE}/{method}",
            request_serializer=lambda made: made.SerializeToString(),
            response_deserializer=answer.FromString,
        )
        found: M = await call(request, metadata=self.metadata, timeout=SECONDS)
        return found

    async def send(self, sent: df.Message) -> pb.SendMessageResponse:
        request = pb.SendMessageRequest(messages=[sent])
        return await self.ask("SendMessage", request, pb.SendMessageResponse)

    def telemetry(self) -> Any:
        stream = self._channel.stream_stream(
            f"/{SERVICE}/Telemetry",
            request_serializer=lambda made: made.SerializeToString(),
            response_deserializer=pb.TelemetryCommand.FromString,
        )
        return stream(metadata=self.metadata)


def metadata(client_id: str = "client-1", keys: Credentials | None = None) -> Any:
    found = [("x-mq-client-id", client_id)]
    if keys is not None:
        mac = hmac.digest(keys.secret_key.encode(), DATE.encode(), "sha1").hex()
        told = f"Credential={keys.access_key}, SignedHeaders=x-mq-date-time, Signature={mac}"
        found += [("x-mq-date-time", DATE), ("authorization", f"MQv2-HMAC-SHA1 {told}")]
    return tuple(found)


def with_client(
    cluster: RunningCluster,
    node: str,
    scenario: Callable[[GrpcClient], Awaitable[None]],
    told: Any = None,
    ca: str = "",
) -> None:
    """Runs a scenario against one node; with ``ca`` over TLS."""
    target = str(cluster.config(node).own.grpc)

    async def run() -> None:
        if ca:
            trusted = grpc.ssl_channel_credentials(Path(ca).read_bytes())
            opened = grpc.aio.secure_channel(target, trusted)
        else:
            opened = grpc.aio.insecure_channel(target)
        async with opened as channel:
            await scenario(GrpcClient(channel, told or metadata()))

    RUNNER.run(run())


def test_every_node_answers_and_tells_where_all_are(shared_cluster: RunningCluster) -> None:
    cluster = shared_cluster
    cluster.dledger("topic", "create", "orders", "--queues", "4", "--type", "NORMAL")
    everywhere = {str(cluster.config(node).own.grpc) for node in cluster.nodes}
    assert {node.grpc for node in cluster.view().nodes} == everywhere

    async def scenario(client: GrpcClient) -> None:
        assert (await client.send(message(message_id="one id"))).status.code == Code.OK
        route = await client.ask(
            "QueryRoute", pb.QueryRouteRequest(topic=ORDERS), pb.QueryRouteResponse
        )
        assert [queue.id for queue in route.message_queues] == [0, 1, 2, 3]
        for queue in route.message_queues:
            assert [*queue.accept_message_types] == [MessageType.NORMAL]
            addresses = queue.broker.endpoints.addresses
            assert {f"{at.host}:{at.port}" for at in addresses} == everywhere

    for node in cluster.nodes:
        with_client(cluster, node, scenario)
    queues = cluster.ask("topic", "describe", "orders")["queues"]
    assert sum(queue["max_offset"] for queue in queues) == 1, "the same message is stored once"


def test_mqadmin_and_the_command_line_set_the_type(shared_cluster: RunningCluster) -> None:
    shared_cluster.dledger("topic", "create", "typed", "--type", "FIFO")
    shared_cluster.dledger("topic", "create", "typed", "--queues", "9")  # the type stays

    async def scenario(client: GrpcClient) -> None:
        answer = await client.send(message("typed"))
        assert answer.status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE

    with_client(shared_cluster, "n0", scenario)


async def settings(client: GrpcClient, given: df.Settings) -> Any:
    stream = client.telemetry()
    await stream.write(pb.TelemetryCommand(settings=given))
    return stream, await asyncio.wait_for(stream.read(), SECONDS)


def test_settings_are_answered_and_the_client_is_seen_at_the_leader(
    shared_cluster: RunningCluster,
) -> None:
    cluster = shared_cluster
    cluster.dledger("topic", "create", "seen")
    follower = next(node for node in cluster.nodes if node != cluster.leader())

    async def scenario(client: GrpcClient) -> None:
        subscription = df.Subscription(
            group=df.Resource(name="watchers"),
            subscriptions=[df.SubscriptionEntry(topic=df.Resource(name="seen"))],
        )
        given = df.Settings(client_type=df.ClientType.SIMPLE_CONSUMER, subscription=subscription)
        stream, told = await settings(client, given)
        assert told.status.code == Code.OK
        policy = told.settings.backoff_policy
        assert policy.max_attempts == 17
        assert [each.seconds for each in policy.customized_backoff.next][:3] == [10, 30, 60]
        assert told.settings.subscription.receive_batch_size == GRPC.receive_max
        beat = await client.ask("Heartbeat", pb.HeartbeatRequest(), pb.HeartbeatResponse)
        assert beat.status.code == Code.OK
        described = await asyncio.to_thread(cluster.ask, "group", "describe", "watchers")
        assert "client-1" in str(described)
        stream.cancel()

    with_client(cluster, follower, scenario)


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (df.Settings(), Code.UNRECOGNIZED_CLIENT_TYPE),
        (df.Settings(client_type=df.ClientType.LITE_PUSH_CONSUMER), Code.UNRECOGNIZED_CLIENT_TYPE),
        (df.Settings(client_type=df.ClientType.PUSH_CONSUMER), Code.BAD_REQUEST),
        (
            df.Settings(
                client_type=df.ClientType.PRODUCER,
                publishing=df.Publishing(topics=[df.Resource()]),
            ),
            Code.ILLEGAL_TOPIC,
        ),
    ],
)
def test_bad_settings_end_the_stream_with_a_status(
    shared_cluster: RunningCluster, given: df.Settings, code: Code
) -> None:
    async def scenario(client: GrpcClient) -> None:
        stream, told = await settings(client, given)
        assert told.status.code == code
        assert not isinstance(await stream.read(), pb.TelemetryCommand)

    with_client(shared_cluster, "n0", scenario)


def test_a_client_without_a_name_has_no_stream(shared_cluster: RunningCluster) -> None:
    async def scenario(client: GrpcClient) -> None:
        # It is refused before it has told anything: a write could meet the end of the stream.
        told = await asyncio.wait_for(client.telemetry().read(), SECONDS)
        assert told.status.code == Code.CLIENT_ID_REQUIRED

    with_client(shared_cluster, "n0", scenario, (("x-mq-language", "PYTHON"),))


def test_idle_streams_are_bounded_and_the_node_serves_on(shared_cluster: RunningCluster) -> None:
    """Beyond ``streams_max`` a stream is refused at once; when they end, others have room."""
    asked = GRPC.streams_max + 100

    async def open_all(target: str) -> list[int]:
        channels = [
            grpc.aio.insecure_channel(target, options=[("grpc.use_local_subchannel_pool", 1)])
            for _ in range(asked // GRPC.connection_streams_max + 1)
        ]
        producer = pb.TelemetryCommand(settings=df.Settings(client_type=df.ClientType.PRODUCER))
        streams, told = [], []
        for number in range(asked):
            channel = channels[number // GRPC.connection_streams_max]
            stream = GrpcClient(channel, metadata(f"idle-{number}")).telemetry()
            streams.append(stream)
            if number < GRPC.streams_max:
                await stream.write(producer)
            # One after the other: grpcio drops some of a thousand calls that come at once.
            told.append(await asyncio.wait_for(stream.read(), SECONDS))
        route = await GrpcClient(channels[-1], metadata()).ask(
            "QueryRoute", pb.QueryRouteRequest(topic=df.Resource(name="any")), pb.QueryRouteResponse
        )
        assert route.status.code == Code.OK
        for channel in channels:
            await channel.close(None)
        return [command.status.code for command in told]

    codes = RUNNER.run(open_all(str(shared_cluster.config("n0").own.grpc)))
    assert codes == [Code.OK] * GRPC.streams_max + [Code.TOO_MANY_REQUESTS] * 100
    assert shared_cluster.runs("n0")

    async def again(client: GrpcClient) -> None:
        for _ in range(50):
            _, told = await settings(client, df.Settings(client_type=df.ClientType.PRODUCER))
            if told.status.code == Code.OK:
                return
            await asyncio.sleep(0.1)
        raise AssertionError("streams that have ended still count")

    with_client(shared_cluster, "n0", again)


def test_noise_and_half_requests_leave_the_node_as_it_was(shared_cluster: RunningCluster) -> None:
    at = shared_cluster.config("n0").own.grpc
    assert at is not None
    for noise in (
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\xff" * 999,
    ):
        with socket.create_connection(at) as connection:
            connection.sendall(noise)

    async def scenario(client: GrpcClient) -> None:
        big = message(body=bytes(5 << 20))
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await client.send(big)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        with pytest.raises(grpc.aio.AioRpcError) as unknown:
            await client.ask("NoSuchCall", pb.HeartbeatRequest(), pb.HeartbeatResponse)
        assert unknown.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert (await client.send(message("noise"))).status.code == Code.OK
        client.metadata = (("x-mq-client-id", "i" * 2 * GRPC.metadata_max),)
        with pytest.raises(grpc.aio.AioRpcError) as large:
            await client.send(message("noise"))
        assert large.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED

    with_client(shared_cluster, "n0", scenario)
    log = (shared_cluster.data("n0") / "log" / "node.log").read_text()
    assert "Traceback" not in log


def test_connections_are_bounded(shared_cluster: RunningCluster) -> None:
    """Beyond ``connections_max`` one is closed at once; the others go on."""
    at = shared_cluster.config("n1").own.grpc
    assert at is not None
    opened = []
    greeting = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
    served = 0
    try:
        for _ in range(GRPC.connections_max + 50):
            connection = socket.create_connection(at)
            connection.settimeout(SECONDS)
            opened.append(connection)
            with suppress(OSError):
                connection.sendall(greeting)
                served += bool(connection.recv(1))
        assert GRPC.connections_max - 10 <= served <= GRPC.connections_max
    finally:
        for connection in opened:
            connection.close()
    assert shared_cluster.runs("n1")


# --- who may


@pytest.fixture
def user(secured_cluster: RunningCluster) -> Credentials:
    cluster = secured_cluster
    if "signed" not in cluster.ask("topic", "list")["topics"]:
        cluster.dledger("topic", "create", "signed")
        cluster.dledger(
            *("security", "user", "add", "signer-1", "--topic", "signed=PUB"),
            *("--out", str(cluster.directory / "signer.toml")),
        )
        cluster.wait_until_level()  # a follower knows the account when it has applied it
    found = read_profile(str(cluster.directory / "signer.toml")).credentials
    assert found is not None
    return found


def test_a_call_is_signed_and_may_do_what_its_account_may(
    secured_cluster: RunningCluster, user: Credentials
) -> None:
    """At each node: the leader checks again what a follower forwards."""
    cases = [
        (metadata(keys=user), "signed", Code.OK),
        (metadata(keys=user), "other", Code.FORBIDDEN),
        (metadata(keys=Credentials(user.access_key, "wrong")), "signed", Code.UNAUTHORIZED),
        (metadata(keys=Credentials("nobody", "wrong")), "signed", Code.UNAUTHORIZED),
        (metadata(keys=Credentials("", "")), "signed", Code.UNAUTHORIZED),
        (metadata(), "signed", Code.UNAUTHORIZED),
    ]
    for node in secured_cluster.nodes:
        for told, topic, code in cases:

            async def scenario(client: GrpcClient, topic: str = topic, code: Code = code) -> None:
                answer = await client.send(message(topic))
                assert answer.status.code == code, answer.status

            with_client(secured_cluster, node, scenario, told)
