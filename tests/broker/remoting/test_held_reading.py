"""Who is beyond a quota is not read for a while."""

from __future__ import annotations

import asyncio

from broker.remoting.connection import Connection
from broker.remoting.protocol.frame import Frame
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
