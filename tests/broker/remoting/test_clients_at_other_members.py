"""What is for a client that is connected to another member of the group."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from broker.remoting.client import RemotingClient
from broker.remoting.clients_at_other_members import ClientsAtOtherMembers
from broker.remoting.connected_clients import Client, ConnectedClients, ConsumerSettings
from broker.remoting.connection import Connection, Handler
from broker.remoting.dispatch import dispatch_by_code
from broker.remoting.protocol.codes import LanguageCode, RequestCode, ResponseCode
from broker.remoting.protocol.errors import (
    CallError,
    ClientNotOnlineError,
    FieldError,
    RequestTimeoutError,
)
from broker.remoting.protocol.frame import Frame
from broker.remoting.server import RemotingServer
from tests.support.virtual_network import NetworkedLoop

REPLY = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
HELLO = 1
"""A heartbeat: the client joins as a producer, and in ``readers``."""
ADDRESSES = tuple(f"10.0.0.{number}:{number}" for number in (1, 2, 3))


class Member:
    """One broker: the clients that it has, and its way to those of the others."""

    def __init__(self, loop: NetworkedLoop, address: str, *, knows_code: bool = True) -> None:
        self.asked = 0
        self.clients = ConnectedClients(loop, lambda _group: False)
        peers = [each for each in ADDRESSES if each != address]
        self.elsewhere = ClientsAtOtherMembers(loop, self.clients, lambda: peers)
        handlers: dict[int, Handler] = {HELLO: self._hello}
        if knows_code:
            handlers[int(RequestCode.PASS_TO_CLIENT)] = self._serve
        host, port = address.split(":")
        self.server = RemotingServer(loop, host, int(port), dispatch_by_code(handlers))

    def _hello(self, connection: Connection, request: Frame) -> None:
        client = Client(request.body.decode(), LanguageCode.JAVA, 1, 0.0)
        self.clients.add_producer(connection, "askers", client)
        self.clients.add_consumer(connection, "readers", client, ConsumerSettings(), ())
        connection.respond(request)

    def _serve(self, connection: Connection, request: Frame) -> None:
        self.asked += 1
        self.elsewhere.serve(connection, request)


class Asker:
    """A client, which answers with ``code``, or not at all."""

    def __init__(self, loop: NetworkedLoop, code: int | None = ResponseCode.SUCCESS) -> None:
        self.got: list[Frame] = []
        self._code = code
        codes = (REPLY, RequestCode.GET_CONSUMER_RUNNING_INFO)
        self.client = RemotingClient(loop, dict.fromkeys(codes, self._take))

    def _take(self, connection: Connection, request: Frame) -> None:
        self.got.append(request)
        if self._code is not None:
            connection.respond(request, self._code, "so it says", body=(b"seen",))


@asynccontextmanager
async def group(
    loop: NetworkedLoop, asker: Asker, at: int | None, *, knows_code: bool = True
) -> AsyncIterator[list[Member]]:
    """Three members; the client ``asker`` is connected to the one at place ``at``."""
    members = [Member(loop, address, knows_code=knows_code) for address in ADDRESSES]
    for member in members:
        await member.server.start()
    try:
        if at is not None:
            await asker.client.invoke(ADDRESSES[at], HELLO, {}, (b"asker",))
        yield members
    finally:
        await asker.client.close()
        for member in members:
            await member.elsewhere.close()
            await member.server.stop()


async def call(
    member: Member, group: str = "", code: int = REPLY, client_id: str = "asker"
) -> tuple[Frame | None, CallError | None]:
    answered: asyncio.Future[tuple[Frame | None, CallError | None]] = asyncio.Future()
    member.elsewhere.call(
        client_id,
        group,
        code,
        {"topic": "T"},
        (b"yes",),
        timeout=3.0,
        done=lambda answer, failure: answered.set_result((answer, failure)),
    )
    return await answered


@pytest.mark.parametrize(("code", "of"), [(REPLY, ""), (307, "readers")])
async def test_a_client_is_reached_by_way_of_the_member_that_has_it(
    loop: NetworkedLoop, code: int, of: str
) -> None:
    asker = Asker(loop)
    async with group(loop, asker, 2) as members:
        answer, failure = await call(members[0], of, code)
        assert failure is None
        assert answer is not None
        assert (answer.code, answer.remark, answer.body) == (0, "so it says", b"seen")
        (got,) = asker.got
        assert (got.code, got.ext, got.body) == (code, {"topic": "T"}, b"yes")
        assert [member.asked for member in members] == [0, 1, 1]


async def test_what_the_client_refuses_is_refused(loop: NetworkedLoop) -> None:
    asker = Asker(loop, 40000)
    async with group(loop, asker, 1) as members:
        answer, _ = await call(members[0])
        assert answer is not None
        assert (answer.code, answer.remark) == (40000, "so it says")


async def test_nobody_has_the_client_and_each_member_is_asked_once(loop: NetworkedLoop) -> None:
    async with group(loop, Asker(loop), None) as members:
        answer, failure = await call(members[0])
        assert (answer, type(failure)) == (None, ClientNotOnlineError)
        assert [member.asked for member in members] == [0, 1, 1]


@pytest.mark.parametrize(("client_id", "of"), [("another", ""), ("asker", "writers")])
async def test_no_other_client_gets_the_request(
    loop: NetworkedLoop, client_id: str, of: str
) -> None:
    asker = Asker(loop)
    async with group(loop, asker, 1) as members:
        _, failure = await call(members[0], of, client_id=client_id)
        assert isinstance(failure, ClientNotOnlineError)
        assert not asker.got


async def test_a_member_that_is_down_does_not_hide_the_client(loop: NetworkedLoop) -> None:
    asker = Asker(loop)
    async with group(loop, asker, 2) as members:
        await members[1].server.stop()
        answer, _ = await call(members[0])
        assert answer is not None
        assert answer.body == b"seen"


async def test_a_client_that_does_not_answer_is_not_taken_for_one_that_is_away(
    loop: NetworkedLoop,
) -> None:
    asker = Asker(loop, None)
    async with group(loop, asker, 1) as members:
        _, failure = await call(members[0])
        assert isinstance(failure, RequestTimeoutError)
        assert len(asker.got) == 1


async def test_members_of_an_earlier_release_have_no_such_client(loop: NetworkedLoop) -> None:
    asker = Asker(loop)
    async with group(loop, asker, 1, knows_code=False) as members:
        _, failure = await call(members[0])
        assert isinstance(failure, ClientNotOnlineError)


async def test_a_group_of_one_has_no_other_members(loop: NetworkedLoop) -> None:
    member = Member(loop, ADDRESSES[0])
    member.elsewhere = ClientsAtOtherMembers(loop, member.clients, tuple)
    _, failure = await call(member)
    assert isinstance(failure, ClientNotOnlineError)


async def test_only_requests_to_one_client_are_passed_on(loop: NetworkedLoop) -> None:
    asker = Asker(loop)
    async with group(loop, asker, 1) as members:
        answer, failure = await call(members[0], code=RequestCode.RESET_CONSUMER_CLIENT_OFFSET)
        assert isinstance(failure, ClientNotOnlineError)
        assert answer is None
        assert not asker.got


async def test_fields_that_are_no_texts_are_refused(loop: NetworkedLoop) -> None:
    asker = Asker(loop)
    async with group(loop, asker, 1) as members:
        (connection,) = members[1].clients.producers["askers"]
        assert isinstance(connection, Connection)
        named = {"client": "asker", "group": "", "request": str(int(REPLY)), "milliseconds": "1"}
        for fields in ("{", "[]", '{"topic":1}'):
            request = Frame(RequestCode.PASS_TO_CLIENT, 1, ext={**named, "fields": fields})
            with pytest.raises(FieldError):
                members[1].elsewhere.serve(connection, request)
