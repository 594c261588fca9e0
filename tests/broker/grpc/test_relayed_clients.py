"""Who a call is from where a relay stands before grpcio, without sockets."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.grpc.port import GrpcPort
from broker.grpc.protocol import service_pb2 as pb
from broker.grpc.protocol.definition_pb2 import Code
from broker.grpc.relay import Relay, _FromClient, _ToGrpc
from broker.grpc.tls import GrpcTls
from broker.remoting.protocol.codes import RequestCode
from broker.security.credentials import NO_SECURITY
from broker.security.port_tls import PortTls
from dledger.wire.endpoint import Endpoint
from tests.broker.grpc.single_service import message, service_of
from tests.broker.remoting.test_access import guarded
from tests.broker.single_broker import running_broker
from tests.support.virtual_network import NetworkedLoop

MIXED = PortTls(ssl.create_default_context, plain=True)
ENDPOINT = Endpoint("127.0.0.1", 8081)
SEEN = ("127.0.0.1", 4711)
"""What grpcio sees."""


class Transport(asyncio.Transport):
    """Keeps what is asked of it."""

    def __init__(self, **told: object) -> None:
        super().__init__(told)
        self.reads = True
        self.closed = False
        self.written = b""
        self.full: _ToGrpc | None = None
        """This protocol hears that its buffer is full at each write."""

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    def write(self, data: Any) -> None:
        self.written += data
        if self.full is not None:
            self.full.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))


@pytest.fixture
def relay(loop: NetworkedLoop, monkeypatch: pytest.MonkeyPatch) -> Relay:
    """It dials nobody."""
    monkeypatch.setattr(Relay, "connect", lambda *_: None)
    return Relay(loop, MIXED, ENDPOINT)


def connected(relay: Relay, *address: object) -> tuple[_FromClient, _ToGrpc]:
    """Both ends of a connection."""
    client = _FromClient(relay)
    client.connection_made(Transport(peername=address))
    end = _ToGrpc(relay, client)
    end.connection_made(Transport(sockname=SEEN))
    return client, end


async def test_a_client_is_known_for_as_long_as_grpcio_has_its_connection(relay: Relay) -> None:
    """What it has sent may be served after it went."""
    client, end = connected(relay, "10.0.0.1", 1111)
    client.begin(end)
    client.connection_lost(None)
    assert cast("Transport", end.transport).closed
    assert relay.client("127.0.0.1:4711") == ("10.0.0.1:1111", False)
    end.connection_lost(None)
    assert relay.client("127.0.0.1:4711") == ("", False)


async def test_a_port_that_is_used_again_is_that_of_the_newer_client(relay: Relay) -> None:
    _, old = connected(relay, "10.0.0.1", 1111)
    connected(relay, "10.0.0.2", 2222)
    old.connection_lost(None)
    assert relay.client("127.0.0.1:4711") == ("10.0.0.2:2222", False)


async def test_a_client_whose_first_bytes_fill_the_buffer_waits(relay: Relay) -> None:
    client, end = connected(relay, "10.0.0.1", 1111)
    mine, its = cast("Transport", client.transport), cast("Transport", end.transport)
    client.data_received(b"preface")
    assert not mine.reads
    its.full = end
    client.begin(end)
    assert its.written == b"preface"
    assert not mine.reads
    end.resume_writing()
    assert mine.reads


async def test_whoever_the_relay_does_not_know_is_not_taken_for_this_machine(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    """Addresses in the white list need no signature, and that of this machine is often there."""
    async with running_broker(loop, tmp_path, **guarded()) as broker, service_of(broker) as service:
        await broker.create_topic("orders", queues=1)
        change = RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG
        assert (await broker.ask(change, {"globalWhiteAddrs": "127.0.0.1"})).code == 0
        body = pb.SendMessageRequest(messages=[message()]).SerializeToString()
        context = SimpleNamespace(
            invocation_metadata=tuple,
            time_remaining=lambda: 3.0,
            peer=lambda: "ipv4:127.0.0.1:4711",
        )
        codes = []
        for tls in (GrpcTls(), GrpcTls(mixed=MIXED)):
            port = GrpcPort(ENDPOINT, tls, service.context, lambda: None, NO_SECURITY)
            call = port._call("SendMessage", context)
            (answer,) = await service.service.dispatcher.serve(call, body)
            codes.append(pb.SendMessageResponse.FromString(answer).status.code)
        assert codes == [Code.OK, Code.UNAUTHORIZED]
