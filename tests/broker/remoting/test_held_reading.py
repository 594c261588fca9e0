"""Who is beyond a quota is not read for a while."""

from __future__ import annotations

import asyncio

import uvloop

from broker.remoting.client import RemotingClient
from broker.remoting.connection import Connection
from broker.remoting.protocol.frame import Frame
from broker.remoting.server import RemotingServer
from tests.broker.remoting.raw_peer import connect
from tests.support.virtual_network import NetworkedLoop


async def test_the_longest_hold_counts(loop: NetworkedLoop) -> None:
    heard: list[float] = []

    def dispatch(connection: Connection, request: Frame) -> None:
        heard.append(loop.time() - began)

    peer = await connect(loop, dispatch)
    began = loop.time()
    for seconds in (1.0, 2.0, 0.1):
        peer.connection.hold_reading(seconds)
    peer.request()
    await asyncio.sleep(3)
    assert heard == [2.0]


def test_a_hold_of_less_than_a_clock_tick_fails_no_request() -> None:
    """uvloop makes a timer of less than half a millisecond a call that knows no time."""
    holds = (1e-6, 2e-6, 0.01, 1e-6)

    def dispatch(connection: Connection, request: Frame) -> None:
        connection.hold_reading(holds[len(request.body) - 1])
        connection.respond(request, body=(request.body,))

    sent = [bytes(each + 1) for each in range(len(holds))]

    async def within() -> list[Frame]:
        loop = asyncio.get_running_loop()
        server = RemotingServer(loop, "127.0.0.1", 0, dispatch)
        await server.start()
        client = RemotingClient(loop)
        address = f"127.0.0.1:{server.port}"
        try:
            asked = (client.invoke(address, 310, body=(body,), timeout=30) for body in sent)
            return await asyncio.gather(*asked)
        finally:
            await client.close()
            await server.stop()

    answers = uvloop.run(within())
    assert [(each.code, bytes(each.body)) for each in answers] == [(0, body) for body in sent]
