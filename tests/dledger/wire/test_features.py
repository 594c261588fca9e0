"""What a node announces as it dials, and what is read of that."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from dledger.wire.features import (
    FEATURES,
    FEATURES_MAX,
    pack_features,
    unpack_features,
)
from dledger.wire.peer_link import PATH
from tests.dledger.wire.test_websocket_transport import (
    Recorder,
    free_ports,
    greeting_of_b,
    transport,
)


@pytest.mark.parametrize(
    ("value", "known"),
    [
        ("", ()),
        ("state-proof", ("state-proof",)),
        ("of-the-future, state-proof", ("state-proof",)),
        ("x" * 8000, ()),
        ("," * FEATURES_MAX + "state-proof", ()),
    ],
)
def test_names_that_nobody_knows_say_nothing(value: str, known: tuple[str, ...]) -> None:
    assert unpack_features(value) == frozenset(known)
    assert unpack_features(pack_features(FEATURES)) == frozenset(FEATURES)


class Connected(Recorder):
    """Notes what peers announced."""

    def __init__(self) -> None:
        super().__init__()
        self.announced: dict[str, object] = {}

    def on_peer_connected(self, peer: str, features: object = ()) -> None:
        self.announced[peer] = features
        super().on_peer_connected(peer)


async def test_two_nodes_tell_each_other_what_they_know() -> None:
    ports = dict(zip("ab", free_ports(2), strict=True))
    nodes = {name: (transport(name, ports), Connected()) for name in ports}
    for made, handler in nodes.values():
        await made.start(handler)
    try:
        for name, (_made, handler) in nodes.items():
            other = "b" if name == "a" else "a"
            assert await handler.next() == ("connected", other, None)
            assert handler.announced == {other: frozenset(FEATURES)}
    finally:
        for made, _ in nodes.values():
            await made.stop()


async def test_a_peer_that_announces_nothing_is_linked_and_knows_nothing() -> None:
    [port] = free_ports(1)
    a = transport("a", {"a": port})
    await a.start(Recorder())
    try:
        async with (
            asyncio.timeout(10),
            aiohttp.ClientSession() as session,
            session.ws_connect(f"http://127.0.0.1:{port}{PATH}") as dialled,
        ):
            await dialled.send_bytes(greeting_of_b("127.0.0.1:1"))
            while "b" not in a._links or a._links["b"].speaking is None:  # noqa: ASYNC110 - untold
                await asyncio.sleep(0)
            assert a._links["b"].features == frozenset()
    finally:
        await a.stop()
