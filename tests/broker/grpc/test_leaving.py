"""Routes name the nodes that are there; who leaves waits until its clients have heard of it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.grpc.call import Call
from broker.grpc.clients import Session
from broker.grpc.protocol import definition_pb2 as df
from broker.grpc.protocol import service_pb2 as pb
from broker.grpc.routes import GONE_SECONDS, Routes
from broker.security.credentials import NO_SECURITY
from broker.topics_and_groups import TopicConfig
from dledger.node.peer_links import PeerLinks
from dledger.wire.endpoint import Endpoint
from tests.broker.grpc.single_service import METADATA, SingleService
from tests.support.virtual_network import NetworkedLoop

NODES = ("n0", "n1", "n2")


def member(node: str) -> SimpleNamespace:
    return SimpleNamespace(grpc=Endpoint(f"10.0.0.{node[1]}", 10916))


class Node:
    """What a route needs of node n0, one of three."""

    def __init__(self, loop: NetworkedLoop) -> None:
        self.links = PeerLinks(loop)
        self.leadership = SimpleNamespace(leader="n1")
        self.core = SimpleNamespace(configuration=SimpleNamespace(addresses={}))
        config = SimpleNamespace(
            node="n0", group="broker-a", namesrv=(), members={each: member(each) for each in NODES}
        )
        state = SimpleNamespace(topics={"orders": TopicConfig("orders", 1, 1)})
        context = SimpleNamespace(
            loop=loop, config=config, node=self, machine=SimpleNamespace(state=state)
        )
        self.routes = Routes(cast("Any", context), NO_SECURITY)

    async def named(self, *, lasting: bool = False) -> str:
        """The numbers of the nodes that a client is told."""
        (route,) = await self.routes.find("orders", lasting=lasting)
        return "".join(each.host[-1] for each in route.endpoints)


@pytest.mark.parametrize(
    ("linked", "leader", "leaving", "named"),
    [
        ("12", "n1", False, "012"),
        ("1", "n1", False, "01"),
        ("12", "n1", True, "12"),
        ("1", "n1", True, "1"),
        ("", "n0", True, "012"),  # better an address that may fail than none
        ("", None, False, "012"),  # this node may be the one that is cut off
        ("", None, True, "12"),
    ],
)
async def test_a_route_names_the_nodes_that_are_there(
    loop: NetworkedLoop, linked: str, leader: str | None, leaving: bool, named: str
) -> None:
    node = Node(loop)
    for each in linked:
        node.links.connected(f"n{each}")
    node.leadership.leader = leader
    node.routes.leaving = leaving
    assert await node.named() == named
    assert await node.named(lasting=True) == "012"


async def test_a_node_that_came_back_is_named_again(loop: NetworkedLoop) -> None:
    node = Node(loop)
    node.links.connected("n1")
    node.links.connected("n2")
    assert await node.named() == "012"
    node.links.lost("n2")
    await asyncio.sleep(1)
    node.links.connected("n2")
    assert await node.named() == "01", "each client asks once meanwhile, and dials anew"
    await asyncio.sleep(GONE_SECONDS)
    assert await node.named() == "012"


async def test_who_leaves_names_others_that_came_back_just_now(loop: NetworkedLoop) -> None:
    """In a rolling restart of three the last one stops within a minute of the first."""
    node = Node(loop)
    for each in ("n1", "n2"):
        node.links.lost(each)
        await asyncio.sleep(1)
        node.links.connected(each)
    assert await node.named() == "0"
    node.routes.leaving = True
    assert await node.named() == "12"
    node.links.lost("n2")
    assert await node.named() == "1"


async def test_who_leaves_waits_for_the_clients_that_have_not_asked_for_their_route(
    service: SingleService,
) -> None:
    await service.broker.create_topic("orders")
    clients, moved = service.service.clients, list[bool]()

    def session(client: str) -> Session:
        found = Session(Call("Telemetry", {"x-mq-client-id": client}, "c:1"), lambda _command: None)
        clients.opened(found)
        return found

    async def ask_route(client: str) -> None:
        service.metadata = METADATA | {"x-mq-client-id": client}
        request = pb.QueryRouteRequest(topic=df.Resource(name="orders"))
        answer = await service.ask("QueryRoute", request, pb.QueryRouteResponse)
        assert answer.status.code == df.Code.OK

    first, _second = session("first"), session("second")
    await ask_route("first")
    assert not clients.staying
    service.service.leave(lambda: moved.append(clients.staying))
    session("third")
    await ask_route("nobody")
    assert (moved, clients.staying) == ([], True)
    clients.closed(first)
    await ask_route("second")
    assert moved == [True, True]
    await ask_route("third")
    assert moved == [True, True, False]
