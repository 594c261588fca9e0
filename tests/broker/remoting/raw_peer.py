"""A peer of the server that reads and writes raw frames."""

from __future__ import annotations

import asyncio

from broker.limits import RemotingLimits
from broker.remoting.connection import Connection, Handler
from broker.remoting.protocol.frame import Frame, encode_request
from broker.remoting.protocol.frame_reader import FrameReader
from broker.remoting.server import RemotingServer
from tests.support.virtual_network import MemoryTransport, NetworkedLoop, turns


class Peer(asyncio.Protocol):
    """A client that keeps what it gets."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.lost = False
        self._reader = FrameReader()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, MemoryTransport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.frames.extend(self._reader.feed(data))

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True

    def request(
        self,
        code: int = 310,
        opaque: int = 1,
        body: bytes = b"",
        *,
        ext: dict[str, str] | None = None,
        flag: int = 0,
    ) -> None:
        self.transport.write(encode_request(code, opaque, ext, len(body), flag=flag) + body)

    @property
    def far(self) -> MemoryTransport:
        return self.transport.peer

    @property
    def connection(self) -> Connection:
        assert isinstance(self.far.protocol, Connection)
        return self.far.protocol


async def connect(
    loop: NetworkedLoop, dispatch: Handler, limits: RemotingLimits | None = None
) -> Peer:
    server = RemotingServer(loop, "10.0.0.1", 10911, dispatch, limits)
    peer = Peer()
    loop.join(peer, server.accept())
    await turns()
    return peer


def echo(connection: Connection, request: Frame) -> None:
    connection.respond(request, ext={"heard": "true"}, body=(request.body,))
