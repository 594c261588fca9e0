"""What members know: announced as they dial, and taken for known where the log says so."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import pytest

from dledger.raft.configuration import Configuration, Configurations
from dledger.wire.features import (
    FEATURES,
    FEATURES_MAX,
    STATE_PROOF,
    Features,
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


def features_of_a(*voters: str, learners: tuple[str, ...] = ()) -> tuple[Features, Configurations]:
    found = Configurations(Configuration(("a", *voters), learners=learners))
    core = SimpleNamespace(
        node="a",
        configurations=found,
        serves=found.current.includes,
    )
    core.configuration = found.current
    return Features(node=cast("Any", SimpleNamespace(core=core))), found


def test_all_members_must_have_announced_it_learners_too() -> None:
    features, _ = features_of_a("b", learners=("c",))
    assert not features.known_by_all(STATE_PROOF)
    features.announced("b", FEATURES)
    assert not features.known_by_all(STATE_PROOF)
    features.announced("c", FEATURES)
    assert features.known_by_all(STATE_PROOF)
    assert not features.known_by_all("another")


def test_what_a_member_announced_stays_known_without_a_link_and_a_strangers_does_not() -> None:
    features, found = features_of_a("b")
    for peer in "bx":
        features.announced(peer, FEATURES)
        assert features.has(peer, STATE_PROOF)
        features.lost(peer)
        assert not features.has(peer, STATE_PROOF)
    assert features.known_by_all(STATE_PROOF)
    found.append(5, Configuration(("a", "b", "x")))
    features._node.core.configuration = found.current  # type: ignore[misc]  # of a stand-in
    assert not features.known_by_all(STATE_PROOF)


def test_a_member_that_comes_back_with_an_earlier_program_knows_it_no_more() -> None:
    features, _ = features_of_a("b")
    features.announced("b", FEATURES)
    features.lost("b")
    features.announced("b", ())
    assert not features.known_by_all(STATE_PROOF)
    features.lost("b")
    assert not features.known_by_all(STATE_PROOF)


def test_what_the_log_uses_its_members_know_and_later_ones_do_not() -> None:
    features, found = features_of_a("b")
    found.append(7, Configuration(("a", "b", "x")))
    features.used(STATE_PROOF, 6)
    assert features.known_by_all(STATE_PROOF)
    features._node.core.configuration = found.current  # type: ignore[misc]  # of a stand-in
    assert not features.known_by_all(STATE_PROOF)


@pytest.mark.parametrize(
    ("value", "known"),
    [
        ("", ()),
        ("state-proof", FEATURES),
        ("of-the-future, state-proof", FEATURES),
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
