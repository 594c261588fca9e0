"""The gRPC service of a broker that is alone, called without a port, in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from google.protobuf.message import Message as AnyMessage

from broker.grpc.call import Call
from broker.grpc.protocol import definition_pb2 as df
from broker.grpc.protocol import service_pb2 as pb
from broker.grpc.protocol.definition_pb2 import Code
from broker.grpc.service import GrpcService
from broker.security.credentials import NO_SECURITY
from tests.broker.single_broker import NOW_MS, SingleBroker, running_broker
from tests.support.virtual_network import NetworkedLoop

M = TypeVar("M", bound=AnyMessage)
CLIENT = "127.0.0.1:4711"
METADATA = {"x-mq-client-id": "client-1"}


class SingleService:
    """Calls the service as a client does."""

    def __init__(self, broker: SingleBroker) -> None:
        self.broker = broker
        self.context = broker.broker.context
        self.service = GrpcService(
            self.context, broker.broker.announcements.leader_address, NO_SECURITY
        )
        self.metadata = METADATA

    async def raw(self, method: str, body: bytes) -> list[bytes]:
        call = Call(method, self.metadata, CLIENT, seconds=3.0)
        return [*await self.service.dispatcher.serve(call, body)]

    async def ask(self, method: str, request: AnyMessage, answer: type[M]) -> M:
        """A call with one answer."""
        (body,) = await self.raw(method, request.SerializeToString())
        return answer.FromString(body)

    async def send(self, *messages: df.Message) -> pb.SendMessageResponse:
        request = pb.SendMessageRequest(messages=messages)
        return await self.ask("SendMessage", request, pb.SendMessageResponse)


def message(topic: str = "orders", body: bytes = b"hello", **system: Any) -> df.Message:
    """A message as clients send it; of the type NORMAL by default."""
    told: dict[str, Any] = {"message_id": "0102030405", "message_type": df.MessageType.NORMAL}
    properties = df.SystemProperties(body_encoding=df.Encoding.IDENTITY, **(told | system))
    return df.Message(topic=df.Resource(name=topic), body=body, system_properties=properties)


@asynccontextmanager
async def service_of(broker: SingleBroker) -> AsyncIterator[SingleService]:
    """The service of a broker that runs."""
    service = SingleService(broker)
    service.service.leadership_changed()
    try:
        yield service
    finally:
        await service.service.close()


@asynccontextmanager
async def running_service(
    loop: NetworkedLoop, data: Path, **settings: Any
) -> AsyncIterator[SingleService]:
    """A broker and its service, started and stopped."""
    async with running_broker(loop, data, **settings) as broker, service_of(broker) as service:
        yield service


__all__ = ["NOW_MS", "Code", "SingleService", "message", "running_service", "service_of"]
