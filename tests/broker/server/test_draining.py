"""A broker that stops waits for exactly what it waits for."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from broker.remoting.client import RemotingClient
from broker.remoting.connection import Connection, Handler
from broker.remoting.dispatch import dispatch_by_code
from broker.remoting.forwarder import Forwarder
from broker.remoting.protocol.codes import RequestCode
from broker.remoting.protocol.frame import Frame
from broker.remoting.server import RemotingServer
from broker.server.draining import TRANSFER_SECONDS, Draining
from dledger.node.state_machine import Leadership
from dledger.raft.raft_state import Role
from tests.support.virtual_network import NetworkedLoop


class Member:
    """A leader whose leadership is elsewhere some time after it is asked to transfer it."""

    def __init__(self, loop: NetworkedLoop, handing_over_seconds: float) -> None:
        self.elsewhere = False
        self._loop = loop
        self._seconds = handing_over_seconds
        self.health = self
        self.draining = Draining(loop, cast("Any", self), lambda: self.elsewhere)
        self.tell(serving=True)

    def tell(self, *, serving: bool) -> None:
        role = Role.LEADER if serving else Role.FOLLOWER
        self.draining.leadership_changed(Leadership(role, 1, "n0", serving))

    def stops(self) -> None:
        self._loop.call_later(self._seconds, self._handed_over)

    def _handed_over(self) -> None:
        self.elsewhere = True
        self.tell(serving=False)


@pytest.mark.parametrize(("seconds", "waits"), [(0.3, 0.3), (60.0, TRANSFER_SECONDS)])
async def test_it_goes_on_the_moment_another_leads(
    loop: NetworkedLoop, seconds: float, waits: float
) -> None:
    member, began = Member(loop, seconds), loop.time()
    assert await member.draining.transfer_leadership(10) is (waits == seconds)
    assert loop.time() - began == pytest.approx(waits)


async def test_it_goes_on_the_moment_its_last_client_leaves(loop: NetworkedLoop) -> None:
    """A connection is a client's, until it turns out that a broker asks over it."""
    draining = Member(loop, 0).draining

    def answer(connection: Connection, request: Frame) -> None:
        connection.respond(request)

    forwarder = Forwarder(loop, "10.0.0.1:1", lambda: None, answer)
    forwarder.on_broker = draining.clients_changed
    handlers: dict[int, Handler] = {
        RequestCode.HEART_BEAT: answer,
        RequestCode.FORWARD: forwarder.from_brokers(answer),
    }
    server = RemotingServer(loop, "10.0.0.1", 1, dispatch_by_code(handlers))
    server.on_closed = draining.clients_changed
    await server.start()
    broker, client = RemotingClient(loop), RemotingClient(loop)
    for each in (broker, client):
        await each.invoke("10.0.0.1:1", RequestCode.HEART_BEAT)
    waiting = asyncio.ensure_future(
        draining.wait_for_clients([lambda: forwarder.has_clients(server.connections)], 100)
    )
    began = loop.time()
    await asyncio.sleep(1)
    await client.close()
    await asyncio.sleep(1)
    assert not waiting.done()
    await broker.invoke("10.0.0.1:1", RequestCode.FORWARD)
    await waiting
    assert loop.time() - began == pytest.approx(2)

    waiting = asyncio.ensure_future(
        draining.wait_for_clients([lambda: bool(server.connections)], 9)
    )
    await broker.close()
    await waiting
    assert loop.time() - began == pytest.approx(2)
    await server.stop()
