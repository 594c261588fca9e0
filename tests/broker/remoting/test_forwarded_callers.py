"""Requests that a follower of a secured group forwards to its leader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from broker.remoting.access_guard import guarded
from broker.remoting.client import RemotingClient
from broker.remoting.connection import Connection
from broker.remoting.dispatch import dispatch_by_code
from broker.remoting.forwarder import Forwarder
from broker.remoting.protocol.codes import RequestCode
from broker.remoting.protocol.frame import Frame
from broker.remoting.server import RemotingServer
from broker.security.access_control import AccessControl
from broker.security.cluster_secrets import ClusterSecrets
from broker.security.credentials import NO_SECURITY, ClientSecurity, Credentials
from dledger.errors import NotLeaderError
from tests.support.virtual_network import NetworkedLoop

SEND = RequestCode.SEND_MESSAGE_V2
ADMIN = Credentials("admin-1234", "admin-secret")
SECRETS = ClusterSecrets((b"\x07" * 32,), ADMIN)
CLUSTER = ClientSecurity(SECRETS.credentials())
FOLLOWER, LEADER = "10.0.0.1:1", "10.0.0.1:2"


@asynccontextmanager
async def group(loop: NetworkedLoop) -> AsyncIterator[list[bytes]]:
    """A follower and a leader that are secured; gives what the leader stored."""
    stored: list[bytes] = []
    members = [_member(loop, address, stored) for address in (FOLLOWER, LEADER)]
    for _, server in members:
        await server.start()
    try:
        yield stored
    finally:
        for forwarder, server in members:
            await forwarder.close()
            await server.stop()


def _member(
    loop: NetworkedLoop, address: str, stored: list[bytes]
) -> tuple[Forwarder, RemotingServer]:
    def store(connection: Connection, request: Frame) -> None:
        if address != LEADER:
            raise NotLeaderError(None)
        stored.append(bytes(request.body))
        connection.respond(request)

    handlers = {int(SEND): store}
    access = AccessControl(enforcing=True, secrets=SECRETS, now_ms=lambda: 0)
    dispatch = guarded(dispatch_by_code(handlers), access, {})
    forwarder = Forwarder(loop, address, lambda: LEADER, dispatch, security=CLUSTER)
    handlers[int(RequestCode.FORWARD)] = forwarder.serve_forwarded
    host, port = address.split(":")
    server = RemotingServer(loop, host, int(port), dispatch, forward=forwarder.take)
    return forwarder, server


async def ask(
    loop: NetworkedLoop, to: str, code: int, ext: dict[str, str], security: ClientSecurity
) -> Frame:
    client = RemotingClient(loop, security=security)
    try:
        async with asyncio.timeout(10):
            return await client.invoke(to, code, ext, (b"body",))
    finally:
        await client.close()


def denied(answer: Frame) -> bool:
    return answer.code == 1 and (answer.remark or "").startswith("AclException: ")


async def test_what_a_client_signed_is_done_by_the_leader(loop: NetworkedLoop) -> None:
    async with group(loop) as stored:
        answer = await ask(loop, FOLLOWER, SEND, {"b": "T"}, ClientSecurity(ADMIN))
        assert answer.code == 0
        assert stored == [b"body"]


async def test_who_signs_nothing_or_wrongly_is_refused_at_the_follower(loop: NetworkedLoop) -> None:
    wrong = ClientSecurity(Credentials(ADMIN.access_key, "another-secret"))
    async with group(loop) as stored:
        for security in (NO_SECURITY, wrong):
            assert denied(await ask(loop, FOLLOWER, SEND, {"b": "T"}, security))
        assert stored == []
