"""Peers under names: resolved at each dial, and believed only if the name is theirs."""

from __future__ import annotations

import socket
from typing import Any

import aiohttp
import pytest

from dledger.wire.endpoint import join_host_port
from dledger.wire.websocket_transport import WebSocketTransport
from tests.dledger.wire.peer_node import node_a
from tests.dledger.wire.test_peer_listener import greeting, refusal
from tests.dledger.wire.test_websocket_transport import Recorder, free_ports

NAME = "b.example.com"


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The addresses of names, which a test may change at any time."""
    known: dict[str, str] = {}
    real = socket.getaddrinfo

    def resolve(host: Any, *args: Any, **options: Any) -> Any:
        if host == NAME and host not in known:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return real(known.get(host, host), *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return known


async def test_the_next_dial_follows_a_changed_answer(names: dict[str, str]) -> None:
    port_a, port_b = free_ports(2)
    a = WebSocketTransport(
        group="g", node="a", host="127.0.0.1", port=port_a, peers={"b": f"{NAME}:{port_b}"}
    )
    heard = Recorder()
    await a.start(heard)
    try:
        for host in ("127.0.0.1", "127.0.0.2"):
            names[NAME] = host
            b = WebSocketTransport(
                group="g",
                node="b",
                host=host,
                port=port_b,
                address=f"{NAME}:{port_b}",
                peers={"a": f"127.0.0.1:{port_a}"},
            )
            await b.start(Recorder())
            try:
                assert await heard.next() == ("connected", "b", None)
            finally:
                await b.stop()
            assert await heard.next() == ("lost", "b", None)
    finally:
        await a.stop()


async def test_a_name_is_believed_of_a_stranger_if_it_stands_for_where_it_dials_from(
    names: dict[str, str],
) -> None:
    async with node_a() as (a, _, url), aiohttp.ClientSession() as session:
        told = greeting("b", f"{NAME}:7")
        assert f"says that it is at {NAME}:7" in await refusal(session, url, told)
        names[NAME] = "192.0.2.1"
        assert f"says that it is at {NAME}:7" in await refusal(session, url, told)
        names[NAME] = "127.0.0.1"
        async with session.ws_connect(url) as connection:
            await connection.send_bytes(told)
            # It is dialled back, where nobody listens; so it hears nothing, and is not refused.
            with pytest.raises(TimeoutError):
                await connection.receive(timeout=0.1)
            assert set(a._links) == {"b"}


async def test_peers_on_ipv6_have_a_link() -> None:
    ports = dict(zip(("a", "b"), free_ports(2), strict=True))
    at = {node: join_host_port("::1", port) for node, port in ports.items()}
    a, b = (
        WebSocketTransport(
            group="g",
            node=node,
            host="::",
            port=ports[node],
            address=at[node],
            peers={peer: at[peer]},
        )
        for node, peer in (("a", "b"), ("b", "a"))
    )
    heard_a, heard_b = Recorder(), Recorder()
    await a.start(heard_a)
    await b.start(heard_b)
    try:
        assert await heard_a.next() == ("connected", "b", None)
        assert await heard_b.next() == ("connected", "a", None)
        socket.create_connection(("127.0.0.1", ports["a"]), timeout=5).close()
    finally:
        await a.stop()
        await b.stop()
