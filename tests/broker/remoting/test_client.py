"""The client: answers by opaque, one connection an address, and every way in which a call fails."""

from __future__ import annotations

import asyncio

import pytest

from broker.limits import RemotingLimits
from broker.remoting.client import RemotingClient
from broker.remoting.connection import Connection
from broker.remoting.protocol.errors import (
    CallError,
    ClientClosedError,
    ConnectFailedError,
    ConnectionLostError,
    RequestTimeoutError,
    TooManyRequestsError,
)
from broker.remoting.protocol.frame import Frame
from broker.remoting.server import RemotingServer
from tests.support.virtual_network import NetworkedLoop, turns

ADDRESS = "10.0.0.1:10911"


class Broker:
    """A server whose requests wait until a test answers them."""

    def __init__(self, loop: NetworkedLoop) -> None:
        self.server = RemotingServer(loop, "10.0.0.1", 10911, self._take)
        self.requests: list[tuple[Connection, Frame]] = []

    def _take(self, connection: Connection, request: Frame) -> None:
        self.requests.append((connection, request))

    def answer_all(self) -> None:
        for connection, request in self.requests:
            connection.respond(request, body=(request.body,))
        self.requests.clear()


async def start(
    loop: NetworkedLoop, limits: RemotingLimits | None = None
) -> tuple[Broker, RemotingClient]:
    broker = Broker(loop)
    await broker.server.start()
    return broker, RemotingClient(loop, limits=limits)


async def failure(answer: asyncio.Future[Frame]) -> CallError:
    with pytest.raises(CallError) as caught:
        await answer
    return caught.value


async def test_a_request_that_began_before_the_connection_is_answered(loop: NetworkedLoop) -> None:
    broker, client = await start(loop)
    answer = client.invoke_nowait(ADDRESS, 310, {"b": "T"}, (b"bo", b"dy"))
    await turns()
    assert broker.requests[0][1].ext == {"b": "T"}
    broker.answer_all()
    assert (await answer).body == b"body"
    await client.close()


async def test_answers_in_any_order_find_their_requests(loop: NetworkedLoop) -> None:
    broker, client = await start(loop)
    answers = [client.invoke_nowait(ADDRESS, 310, None, (b"%d" % n,)) for n in range(20)]
    await turns()
    broker.requests.reverse()
    broker.answer_all()
    assert [(await answer).body for answer in answers] == [b"%d" % n for n in range(20)]
    await client.close()


async def test_whoever_stumbles_over_an_answer_harms_no_other(
    loop: NetworkedLoop, caplog: pytest.LogCaptureFixture
) -> None:
    def stumble(answer: Frame | None, failure: CallError | None) -> None:
        raise ValueError("not this one")

    broker, client = await start(loop)
    client.call(ADDRESS, 310, None, (), timeout=3.0, done=stumble)
    answer = client.invoke_nowait(ADDRESS, 310, None, (b"body",))
    await turns()
    broker.answer_all()
    assert (await answer).body == b"body"
    await client.close()
    assert "ValueError: not this one" in caplog.text


async def test_all_requests_to_an_address_share_a_connection(loop: NetworkedLoop) -> None:
    broker, client = await start(loop)
    for _ in range(3):
        client.push(ADDRESS, 15)
        await turns()
    assert len(broker.server.connections) == 1
    assert [request.is_one_way for _, request in broker.requests] == [True, True, True]
    await client.close()


async def test_a_refused_connection_fails_the_request(loop: NetworkedLoop) -> None:
    client = RemotingClient(loop)
    error = await failure(client.invoke_nowait("10.0.0.1:1", 310))
    assert isinstance(error, ConnectFailedError)
    assert str(error) == "10.0.0.1:1: nobody listens on 1"
    assert error.retriable


async def test_the_next_request_after_a_refused_connection_tries_again(loop: NetworkedLoop) -> None:
    client = RemotingClient(loop)
    await failure(client.invoke_nowait(ADDRESS, 310))
    broker = Broker(loop)
    await broker.server.start()
    answer = client.invoke_nowait(ADDRESS, 310)
    await turns()
    broker.answer_all()
    assert (await answer).code == 0
    await client.close()


async def test_a_connection_that_does_not_come_about_fails_the_request(loop: NetworkedLoop) -> None:
    loop.unreachable.add(10911)
    client = RemotingClient(loop, limits=RemotingLimits(connect_seconds=2))
    begin = loop.time()
    error = await failure(client.invoke_nowait(ADDRESS, 310, timeout=10))
    assert str(error) == "10.0.0.1:10911: no connection within 2 s"
    assert loop.time() - begin == pytest.approx(2)


async def test_what_left_on_a_connection_that_came_too_late_may_be_done(
    loop: NetworkedLoop,
) -> None:
    loop.untold.add(10911)
    broker, client = await start(loop, RemotingLimits(connect_seconds=2))
    error = await failure(client.invoke_nowait(ADDRESS, 310, timeout=10))
    assert [request.code for _, request in broker.requests] == [310]
    assert isinstance(error, ConnectionLostError)
    assert str(error) == "10.0.0.1:10911: the connection was made too late"
    await client.close()


async def test_the_time_to_connect_counts_for_the_request(loop: NetworkedLoop) -> None:
    loop.unreachable.add(10911)
    client = RemotingClient(loop)
    begin = loop.time()
    error = await failure(client.invoke_nowait(ADDRESS, 310, timeout=1))
    assert isinstance(error, RequestTimeoutError)
    assert loop.time() - begin == pytest.approx(1)
    await client.close()


async def test_an_address_that_is_none_fails_the_request(loop: NetworkedLoop) -> None:
    client = RemotingClient(loop)
    error = await failure(client.invoke_nowait("nonsense", 310))
    assert str(error) == "nonsense: 'nonsense' is not host:port, such as 127.0.0.1:10911"


async def test_each_request_times_out_at_its_own_deadline(loop: NetworkedLoop) -> None:
    _, client = await start(loop)
    begin = loop.time()
    ended: list[tuple[int, float]] = []

    async def call(seconds: int) -> None:
        error = await failure(client.invoke_nowait(ADDRESS, 11, timeout=seconds))
        assert isinstance(error, RequestTimeoutError)
        ended.append((seconds, loop.time() - begin))

    await asyncio.gather(call(30), call(3), call(5))
    assert [timeout for timeout, _ in ended] == [3, 5, 30]
    assert [after for _, after in ended] == pytest.approx([3, 5, 30])
    await client.close()


async def test_an_answer_that_comes_too_late_is_dropped(loop: NetworkedLoop) -> None:
    broker, client = await start(loop)
    late = client.invoke_nowait(ADDRESS, 310, timeout=1)
    assert isinstance(await failure(late), RequestTimeoutError)
    broker.answer_all()
    next_answer = client.invoke_nowait(ADDRESS, 310, None, (b"next",))
    await turns()
    broker.answer_all()
    assert (await next_answer).body == b"next"
    await client.close()


async def test_a_caller_may_give_up_on_an_answer(loop: NetworkedLoop) -> None:
    broker, client = await start(loop)
    given_up = client.invoke_nowait(ADDRESS, 310)
    kept = client.invoke_nowait(ADDRESS, 310)
    await turns()
    given_up.cancel()
    broker.answer_all()
    assert (await kept).code == 0
    await client.close()


async def test_a_lost_connection_fails_what_waits_on_it(loop: NetworkedLoop) -> None:
    broker, client = await start(loop)
    answers = [client.invoke_nowait(ADDRESS, 310) for _ in range(3)]
    await turns()
    broker.server.connections[0].abort()
    for answer in answers:
        assert isinstance(await failure(answer), ConnectionLostError)
    again = client.invoke_nowait(ADDRESS, 310)
    await turns()
    broker.requests = broker.requests[-1:]
    broker.answer_all()
    assert (await again).code == 0
    await client.close()


async def test_a_lost_connection_is_told(loop: NetworkedLoop) -> None:
    broker = Broker(loop)
    await broker.server.start()
    lost: list[str] = []
    client = RemotingClient(loop, on_lost=lost.append)
    client.push(ADDRESS, 15)
    await turns()
    broker.server.connections[0].abort()
    await turns()
    assert lost == [ADDRESS]
    await client.close()


async def test_more_requests_than_allowed_are_refused(loop: NetworkedLoop) -> None:
    broker, client = await start(loop, RemotingLimits(pending_max=2))
    answers = [client.invoke_nowait(ADDRESS, 310) for _ in range(2)]
    error = await failure(client.invoke_nowait(ADDRESS, 310))
    assert isinstance(error, TooManyRequestsError)
    await turns()
    broker.answer_all()
    assert [(await answer).code for answer in answers] == [0, 0]
    await client.close()


async def test_the_client_reads_on_while_the_server_does_not(loop: NetworkedLoop) -> None:
    broker, client = await start(loop, RemotingLimits(write_buffer_high=1000))
    first = client.invoke_nowait(ADDRESS, 310)
    await turns()
    (server_side,) = broker.server.connections
    assert server_side._transport is not None
    server_side._transport.pause_reading()
    second = client.invoke_nowait(ADDRESS, 310, None, (bytes(5000),), timeout=9)
    await turns()
    broker.answer_all()
    assert (await first).code == 0
    server_side._transport.resume_reading()
    await turns()
    broker.answer_all()
    assert (await second).body == bytes(5000)
    await client.close()


async def test_a_request_of_the_server_reaches_its_handler(loop: NetworkedLoop) -> None:
    broker = Broker(loop)
    await broker.server.start()
    groups: list[object] = []
    client = RemotingClient(loop, {40: lambda _, frame: groups.append(frame.ext["consumerGroup"])})
    client.push(ADDRESS, 34)
    await turns()
    (server_side,) = broker.server.connections
    server_side.push(40, {"consumerGroup": "G"})
    await turns()
    assert groups == ["G"]
    assert (await server_side.invoke(307, timeout=3)).code == 3
    await client.close()


async def test_a_binary_client_is_answered_in_binary(loop: NetworkedLoop) -> None:
    broker = Broker(loop)
    await broker.server.start()
    client = RemotingClient(loop, serialization=1)
    answer = client.invoke_nowait(ADDRESS, 310, {"b": "T"})
    await turns()
    broker.answer_all()
    assert (await answer).serialization == 1
    await client.close()


async def test_closing_fails_what_waits_and_what_comes_after(loop: NetworkedLoop) -> None:
    _, client = await start(loop)
    loop.unreachable.add(1)
    waiting = client.invoke_nowait(ADDRESS, 310)
    connecting = client.invoke_nowait("10.0.0.1:1", 310)
    await turns()
    await client.close()
    for answer in (waiting, connecting, client.invoke_nowait(ADDRESS, 310)):
        error = await failure(answer)
        assert isinstance(error, ClientClosedError)
        assert not error.retriable
    client.push(ADDRESS, 15)
