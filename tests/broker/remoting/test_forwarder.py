"""What a follower cannot do goes to the leader, once, and its answer comes back."""

from __future__ import annotations

import asyncio

import pytest

from broker.limits import QUOTAS, ForwardingLimits, RemotingLimits
from broker.remoting.client import RemotingClient
from broker.remoting.connection import Connection, Handler
from broker.remoting.dispatch import dispatch_by_code
from broker.remoting.forwarded_frame import client_address, client_host_bytes
from broker.remoting.forwarder import Forwarder
from broker.remoting.processors.callers import hold
from broker.remoting.protocol.addresses import host_bytes
from broker.remoting.protocol.codes import (
    FLAG_ONE_WAY,
    LEADER,
    OUTCOME,
    OUTCOME_NOT_LEADER,
    OUTCOME_UNKNOWN,
    RequestCode,
    ResponseCode,
)
from broker.remoting.protocol.errors import FieldError
from broker.remoting.protocol.frame import Frame
from broker.remoting.server import RemotingServer
from dledger.errors import NotLeaderError, NotServingError
from tests.support.virtual_network import NetworkedLoop, turns

SEND = RequestCode.SEND_MESSAGE_V2
LIMITS = ForwardingLimits(
    wait_seconds=1.0, waiting_max=3, waiting_bytes_max=100, answer_seconds=2.0
)


def address(number: int) -> str:
    return f"10.0.0.{number}:{number}"


class Member:
    """A broker that stores what it is sent while it leads, and answers with its number."""

    def __init__(self, loop: NetworkedLoop, number: int) -> None:
        self.leader: int | None = None
        self.number = number
        self.serving = True
        self.silent = False
        self.stored: list[tuple[bytes, str, bytes]] = []
        self.asked = 0
        self.holds = 0.0
        """Seconds: every client is beyond a quota."""
        handlers: dict[int, Handler] = {int(SEND): self._store}
        dispatch = dispatch_by_code(handlers)
        self.forwarder = Forwarder(
            loop, address(number), self._leader_address, dispatch, limits=LIMITS
        )
        handlers[int(RequestCode.FORWARD)] = self.forwarder.from_brokers(
            self.forwarder.serve_forwarded
        )
        self.server = RemotingServer(
            loop, "10.0.0.1", number, dispatch, forward=self.forwarder.take
        )

    def _leader_address(self) -> str | None:
        return None if self.leader is None else address(self.leader)

    def _store(self, connection: Connection, request: Frame) -> None:
        self.asked += 1
        if self.leader != self.number:
            raise NotLeaderError(None)
        if not self.serving:
            raise NotServingError
        self.stored.append(
            (
                request.body,
                client_address(connection, request),
                client_host_bytes(connection, request),
            )
        )
        hold(connection, request, self.holds)
        if not self.silent:
            connection.respond(
                request,
                ext={"by": str(self.number), **dict.fromkeys(request.ext, "kept")},
                body=(request.body,),
            )

    def hear(self, leader: int | None) -> None:
        self.leader = leader
        self.forwarder.leadership_changed()

    async def stop(self) -> None:
        await self.forwarder.close()
        await self.server.stop()


class Group:
    """Three members and a client."""

    def __init__(self, loop: NetworkedLoop) -> None:
        self.members = {number: Member(loop, number) for number in (1, 2, 3)}
        self.client = RemotingClient(loop)

    async def __aenter__(self) -> Group:
        for member in self.members.values():
            await member.server.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.client.close()
        for member in self.members.values():
            await member.stop()

    def hear(self, leader: int | None) -> None:
        for member in self.members.values():
            member.hear(leader)

    def send(self, to: int, body: bytes = b"m") -> asyncio.Future[Frame]:
        return self.client.invoke_nowait(
            address(to), SEND, {"b": "T", "n": "1"}, (body,), timeout=10
        )


async def test_a_follower_answers_with_what_the_leader_says(loop: NetworkedLoop) -> None:
    async with Group(loop) as group:
        group.hear(2)
        answer = await group.send(1, b"body")
        assert (answer.code, answer.body) == (ResponseCode.SUCCESS, b"body")
        assert answer.ext == {"by": "2", "b": "kept", "n": "kept", LEADER: address(2)}
        assert [stored[0] for stored in group.members[2].stored] == [b"body"]
        assert group.members[1].asked == 1
        assert group.members[3].asked == 0


async def test_the_leader_knows_where_a_request_came_from(loop: NetworkedLoop) -> None:
    async with Group(loop) as group:
        group.hear(2)
        await group.send(2)
        await group.send(1)
        (_, direct, direct_bytes), (_, forwarded, forwarded_bytes) = group.members[2].stored
        assert direct != forwarded  # a client has a port to each broker
        for client, stored in ((direct, direct_bytes), (forwarded, forwarded_bytes)):
            host, port = client.split(":")
            assert stored == host_bytes(host, int(port))


async def test_who_is_beyond_a_quota_is_held_where_it_is_connected(loop: NetworkedLoop) -> None:
    """Also before it has an answer, and nobody else whose requests take the same way."""
    async with Group(loop) as group:
        group.hear(2)
        leader, other = group.members[2], RemotingClient(loop)
        leader.silent, leader.holds = True, 1.5
        first = group.send(1, b"first")
        await turns(20)
        leader.silent, leader.holds = False, 0.0
        began = loop.time()
        second = group.send(1, b"second")
        await other.invoke(address(1), SEND, {"b": "T"}, (b"of another",), timeout=10)
        assert loop.time() - began < 0.1
        await second
        assert loop.time() - began == pytest.approx(QUOTAS.pause_seconds_max)
        assert [stored[0] for stored in leader.stored] == [b"first", b"of another", b"second"]
        first.cancel()
        await other.close()


async def test_connections_of_other_brokers_are_no_clients(loop: NetworkedLoop) -> None:
    async with Group(loop) as group:
        group.hear(2)
        await group.send(1)
        clients = {
            number: member.forwarder.has_clients(member.server.connections)
            for number, member in group.members.items()
        }
        assert clients == {1: True, 2: False, 3: False}
        assert len(group.members[2].server.connections) == 1


async def test_nothing_is_forwarded_twice(loop: NetworkedLoop) -> None:
    """Members that take each other for the leader, as they may for a moment."""
    async with Group(loop) as group:
        group.members[1].leader, group.members[2].leader = 2, 1
        answer = await group.send(1)
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert answer.ext == {OUTCOME: OUTCOME_NOT_LEADER}
        assert (group.members[1].asked, group.members[2].asked) == (1, 1)


async def test_requests_wait_for_a_leader_and_keep_their_order(loop: NetworkedLoop) -> None:
    async with Group(loop) as group:
        answers = [group.send(1, b"%d" % n) for n in range(3)]
        await asyncio.sleep(0.5)
        assert not any(answer.done() for answer in answers)
        group.hear(3)
        assert {(await answer).ext["by"] for answer in answers} == {"3"}
        assert [stored[0] for stored in group.members[3].stored] == [b"0", b"1", b"2"]


async def test_what_waited_is_served_here_when_this_member_is_elected(loop: NetworkedLoop) -> None:
    async with Group(loop) as group:
        answer = group.send(1)
        await asyncio.sleep(0.5)
        group.members[1].serving = False
        group.hear(1)
        await asyncio.sleep(0.2)
        assert not answer.done()
        group.members[1].serving = True
        group.hear(1)
        assert (await answer).ext["by"] == "1"
        assert len(group.members[1].stored) == 1


async def test_a_leader_that_does_not_serve_yet_keeps_what_was_forwarded(
    loop: NetworkedLoop,
) -> None:
    async with Group(loop) as group:
        group.members[2].serving = False
        group.hear(2)
        answer = group.send(1)
        await asyncio.sleep(0.3)
        assert not answer.done()
        group.members[2].serving = True
        group.members[2].hear(2)
        assert (await answer).ext["by"] == "2"


async def test_without_a_leader_requests_are_refused_after_a_second_then_at_once(
    loop: NetworkedLoop,
) -> None:
    async with Group(loop) as group:
        began = loop.time()
        first = group.send(1)
        await asyncio.sleep(0.6)
        second = group.send(1)
        for answer in (await first, await second):
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert answer.ext == {OUTCOME: OUTCOME_NOT_LEADER}
        assert loop.time() - began == pytest.approx(1.0)
        group.hear(None)  # a candidate gives up: that is no leader
        await group.send(1)
        assert loop.time() - began == pytest.approx(1.0)
        group.hear(2)
        assert (await group.send(1)).ext["by"] == "2"
        group.hear(None)
        waits = group.send(1)
        await asyncio.sleep(0.5)
        assert not waits.done()
        group.hear(2)
        assert (await waits).ext["by"] == "2"


async def test_a_leader_that_answers_nothing_may_have_stored_it(loop: NetworkedLoop) -> None:
    async with Group(loop) as group:
        group.hear(2)
        group.members[2].silent = True
        lost = group.send(1)
        await turns(20)
        for connection in group.members[2].server.connections:
            connection.abort()
        late = group.send(1)
        for answer in (await lost, await late):
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert answer.ext == {OUTCOME: OUTCOME_UNKNOWN}
        assert len(group.members[2].stored) == 2  # each once


async def test_a_leader_that_is_gone_is_waited_for_until_another_leads(loop: NetworkedLoop) -> None:
    async with Group(loop) as group:
        group.hear(2)
        await group.members[2].server.stop()
        answer = group.send(1)
        await asyncio.sleep(0.5)
        assert not answer.done()
        group.hear(3)
        assert (await answer).ext["by"] == "3"
        assert group.members[3].asked == 1


async def test_a_leader_that_has_stepped_down_meanwhile_sends_it_back(loop: NetworkedLoop) -> None:
    async with Group(loop) as group:
        group.members[1].leader = 2
        group.members[2].leader = group.members[3].leader = 3
        answer = group.send(1)
        await asyncio.sleep(0.1)
        group.members[1].hear(3)
        assert (await answer).ext["by"] == "3"


async def test_a_leader_that_answers_again_is_one_and_the_next_is_waited_for(
    loop: NetworkedLoop,
) -> None:
    """Its port was out of reach for a while, and it led on."""
    async with Group(loop) as group:
        group.hear(2)
        leader = group.members[2]
        await leader.server.stop()
        answer = await group.send(1)
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        await leader.server.start()
        assert (await group.send(1)).ext["by"] == "2"
        group.hear(None)
        waits = group.send(1)
        await asyncio.sleep(0.5)
        assert not waits.done()
        group.hear(3)
        assert (await waits).ext["by"] == "3"


async def test_no_more_than_the_limits_wait(loop: NetworkedLoop) -> None:
    async with Group(loop) as group:
        waiting = [group.send(1, b"x" * 40) for _ in range(2)]
        too_large = await group.send(1, b"x" * 40)
        assert too_large.code == ResponseCode.SERVICE_NOT_AVAILABLE
        waiting.append(group.send(1, b""))
        too_many = await group.send(1, b"")
        assert too_many.code == ResponseCode.SERVICE_NOT_AVAILABLE
        group.hear(2)
        assert {(await answer).ext["by"] for answer in waiting} == {"2"}


async def test_what_waits_is_refused_when_the_broker_stops(loop: NetworkedLoop) -> None:
    async with Group(loop) as group:
        answer = group.send(1)
        await turns(20)
        await group.members[1].forwarder.close()
        assert (await answer).ext == {OUTCOME: OUTCOME_NOT_LEADER}
        assert (await group.send(1)).ext == {OUTCOME: OUTCOME_NOT_LEADER}


async def test_requests_of_clients_that_have_left_are_dropped(loop: NetworkedLoop) -> None:
    async with Group(loop) as group:
        group.send(1).add_done_callback(lambda answer: answer.exception())
        await turns(20)
        await group.client.close()
        await turns(20)
        group.hear(2)
        await asyncio.sleep(0.1)
        assert group.members[2].stored == []
        group.client = RemotingClient(loop)


async def test_a_one_way_request_is_forwarded_and_not_answered(loop: NetworkedLoop) -> None:
    async with Group(loop) as group:
        group.hear(2)
        group.client.push(address(1), SEND, {"b": "T"}, (b"one way",))
        await asyncio.sleep(0.1)
        assert [stored[0] for stored in group.members[2].stored] == [b"one way"]
        (connection,) = group.members[1].server.connections
        assert connection.buffered == 0


@pytest.mark.parametrize(
    ("words", "fields", "what"),
    [
        ("", "{}", "forwarded is not the code"),
        ("310", "{}", "forwarded is not the code"),
        ("310 409", "{}", "forwarded is not the code"),
        ("x 409 a:1", "{}", "forwarded is not the code"),
        ("310 -1 a:1", "{}", "forwarded is not the code"),
        ("9005 1 a:1", "{}", "not forwarded again"),
        ("310 409 a:1", "{", "fields is not JSON"),
        ("310 409 a:1", "[]", "fields is not a JSON object"),
    ],
)
def test_what_is_no_forwarded_request_is_refused(words: str, fields: str, what: str) -> None:
    loop = NetworkedLoop()
    member = Member(loop, 1)
    request = Frame(
        RequestCode.FORWARD, 7, FLAG_ONE_WAY, ext={"forwarded": words, "fields": fields}
    )
    with pytest.raises(FieldError, match=what):
        member.forwarder.serve_forwarded(
            Connection(loop, lambda *_: None, RemotingLimits()), request
        )
    loop.run_until_complete(member.forwarder.close())
    loop.close()


async def test_a_client_without_an_address_of_4_bytes_is_stored_as_none(
    loop: NetworkedLoop,
) -> None:
    async with Group(loop) as group:
        group.hear(2)
        ext = {"forwarded": "310 409 nowhere", "fields": "{}"}
        await group.client.invoke(address(2), RequestCode.FORWARD, ext, (b"m",))
        assert group.members[2].stored == [(b"m", "nowhere", bytes(8))]
