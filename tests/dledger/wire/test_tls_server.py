"""The port of TLS itself, below what is spoken there."""

from __future__ import annotations

import asyncio
import socket
import ssl

import pytest

from dledger.wire.tls_server import TlsServer


def no_context() -> ssl.SSLContext:
    raise AssertionError("no handshake begins")


@pytest.mark.parametrize("tls", [True, False])
@pytest.mark.usefixtures("each_loop")
async def test_who_begins_to_speak_as_the_port_closes_is_hung_up_on(tls: bool) -> None:
    server = TlsServer(asyncio.Protocol, no_context, plain=True, refused=lambda *_: None)
    await server.start("127.0.0.1", 0)
    with socket.create_connection(server.sockets[0].getsockname()) as client:
        while not server._silent:  # noqa: ASYNC110 - nobody is told of it
            await asyncio.sleep(0)
        [connection] = server._silent
        client.sendall(b"\x16" if tls else b"P")
        while not server._connecting:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0)
        server.close()
        await asyncio.sleep(0)
        assert connection.fileno() == -1
