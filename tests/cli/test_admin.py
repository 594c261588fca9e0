"""What a command's calls to servers come to."""

from __future__ import annotations

import asyncio

import pytest

from broker.cli.admin import ANSWER_SECONDS, Admin
from broker.cli.failure import CommandError
from broker.cli.view import VIEW_SECONDS, view_node
from broker.remoting.client import RemotingClient
from broker.remoting.codes import RequestCode
from broker.remoting.connection import Connection
from broker.remoting.frame import Frame
from broker.remoting.server import RemotingServer
from tests.remoting.virtualnet import VirtualLoop, in_virtual_time

ADDRESS = "10.0.0.1:10911"


@in_virtual_time
async def test_a_command_waits_for_a_slow_broker_and_a_view_does_not(loop: VirtualLoop) -> None:
    def slow(connection: Connection, request: Frame) -> None:
        loop.call_later(ANSWER_SECONDS - 1, connection.respond, request)

    server = RemotingServer(loop, "10.0.0.1", 10911, slow)
    await server.start()
    client = RemotingClient(loop)
    admin = Admin(client, ADDRESS)

    assert (await admin.ask(ADDRESS, RequestCode.UPDATE_AND_CREATE_TOPIC)).code == 0
    began = loop.time()
    with pytest.raises(CommandError, match="no answer from"):
        await view_node(admin, ADDRESS)
    assert loop.time() - began == pytest.approx(VIEW_SECONDS, abs=0.5)

    await asyncio.sleep(ANSWER_SECONDS)
    await client.close()
    await server.stop()
