"""TLS on the gRPC port of real nodes: for who wants it, or for all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from broker.grpc.protocol import service_pb2 as pb
from broker.grpc.protocol.definition_pb2 import Code, MessageType
from broker.security.credentials import Credentials, read_profile
from tests.broker.grpc.single_service import message
from tests.cluster.running_cluster import (
    RunningCluster,
    admin_profile,
    secured_cluster,
    start_cluster,
)
from tests.cluster.test_grpc_port import ORDERS, GrpcClient, metadata, with_client

__all__ = ["secured_cluster"]


def admin(cluster: RunningCluster) -> Credentials:
    found = read_profile(str(admin_profile(cluster.directory))).credentials
    assert found is not None
    return found


def ca(cluster: RunningCluster) -> str:
    return str(cluster.directory / "security" / "ca.pem")


@pytest.fixture
def enforcing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningCluster]:
    directory = tmp_path / "data"
    monkeypatch.setenv("DLEDGER_PROFILE", str(admin_profile(directory)))
    running = start_cluster(directory, True, nodes=2, tls="enforcing")
    yield running
    running.stop()


def test_a_permissive_port_takes_both_kinds(secured_cluster: RunningCluster) -> None:
    """At each node: followers pass on what came by TLS, as any call."""
    cluster, signed = secured_cluster, metadata(keys=admin(secured_cluster))
    cluster.dledger("topic", "create", "orders")

    async def scenario(client: GrpcClient) -> None:
        large = message(body=bytes(3 << 20), message_id="large")
        assert (await client.send(large)).status.code == Code.OK
        route = await client.ask(
            "QueryRoute", pb.QueryRouteRequest(topic=ORDERS), pb.QueryRouteResponse
        )
        assert MessageType.NORMAL in route.message_queues[0].accept_message_types
        client.metadata = metadata(keys=Credentials("nobody", "wrong"))
        assert (await client.send(message())).status.code == Code.UNAUTHORIZED

    for node in cluster.nodes:
        for trusted in ("", ca(cluster)):
            with_client(cluster, node, scenario, signed, trusted)


def test_an_enforcing_port_takes_tls_alone(enforcing: RunningCluster) -> None:
    signed = metadata(keys=admin(enforcing))
    enforcing.dledger("topic", "create", "orders")

    async def sends(client: GrpcClient) -> None:
        assert (await client.send(message())).status.code == Code.OK

    async def fails(client: GrpcClient) -> None:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await client.send(message())
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE

    for node in enforcing.nodes:
        with_client(enforcing, node, sends, signed, ca(enforcing))
        with_client(enforcing, node, fails, signed)
