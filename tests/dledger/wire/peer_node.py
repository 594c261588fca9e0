"""A node that listens. The test plays its peers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from dledger.config import PeerLimits
from dledger.wire.peer_link import PATH
from dledger.wire.websocket_transport import WebSocketTransport
from tests.dledger.wire.test_websocket_transport import Recorder, free_ports

LIMITS = PeerLimits(strangers_max=2, ungreeted_max=3, greeting_seconds=0.3, message_seconds=0.2)


@asynccontextmanager
async def node_a(
    limits: PeerLimits = LIMITS, peers: dict[str, str] | None = None
) -> AsyncIterator[tuple[WebSocketTransport, Recorder, str]]:
    [port] = free_ports(1)
    a = WebSocketTransport(
        group="g", node="a", host="127.0.0.1", port=port, peers=peers or {}, limits=limits
    )
    heard = Recorder()
    await a.start(heard)
    try:
        yield a, heard, f"http://127.0.0.1:{port}{PATH}"
    finally:
        await a.stop()


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110 - nobody is told of it
            await asyncio.sleep(0.01)
