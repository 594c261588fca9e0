"""A connection that broke in this turn of the loop, and tells so in the next."""

from __future__ import annotations

import asyncio

import pytest

from broker.remoting.connection import Connection
from broker.remoting.protocol.frame import Frame
from tests.broker.remoting.raw_peer import connect
from tests.support.virtual_network import MemoryTransport, NetworkedLoop


def refuse_writes(transport: MemoryTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    """As uvloop does from the failure of a write on."""

    def refuse(_data: object) -> None:
        raise RuntimeError("the handler is closed")

    monkeypatch.setattr(transport, "_closing", True)
    monkeypatch.setattr(transport, "write", refuse)


@pytest.mark.parametrize("size", [1, 1 << 20])
async def test_an_answer_for_it_is_dropped(
    loop: NetworkedLoop, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    failures: list[dict[str, object]] = []
    loop.set_exception_handler(lambda _loop, context: failures.append(context))

    def answer(connection: Connection, request: Frame) -> None:
        connection.respond(request, body=(bytes(size),))
        refuse_writes(peer.far, monkeypatch)

    peer = await connect(loop, answer)
    peer.request()
    await asyncio.sleep(0.1)
    assert failures == []
    peer.far.protocol.connection_lost(None)
    assert peer.connection.buffered == 0
